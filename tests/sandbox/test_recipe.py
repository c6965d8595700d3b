from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from selfplay.errors import NotFound, UserError
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.recipe import limits_of, load_recipe


def test_shipped_recipe_and_its_spec() -> None:
    recipe = load_recipe("python")
    assert (recipe.folder / "Dockerfile").is_file()
    spec = recipe.spec(memory_mb=64, archive="/a.tar")
    assert (spec.name, spec.memory_mb, spec.pids, spec.archive) == ("python", 64, 256, "/a.tar")


def test_the_shipped_limits_are_those_of_every_sandbox() -> None:
    """So that what was kept, or recorded, before recipes had a say is the same still."""
    spec = load_recipe("python").spec()
    assert spec == SandboxSpec(name="python")
    assert limits_of(spec) == {}
    assert limits_of(dataclasses.replace(spec, memory_mb=64, archive="/a.tar", env={"A": "1"})) == {"memory_mb": 64.0}


def test_numbers_without_a_fraction_are_limits_too(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sandbox.toml").write_text("[limits]\ncpus = 2\nttl_seconds = 0.5\n", encoding="utf-8")
    spec = load_recipe("mine", folder=tmp_path).spec()
    assert (spec.cpus, spec.ttl_seconds, spec.memory_mb) == (2, 0.5, 1024)


def test_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(NotFound) as caught:
        load_recipe("pyhton")
    assert "python" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colour = 1", "unknown key `colour`"),
        ("[limits]\nmemory = 1", "unknown key `limits.memory`"),
        ("[limits]\npids = 0", "`limits.pids`"),
        ("[limits]\npids = true", "`limits.pids`"),
        ("[limits]\nmemory_mb = 512.5", "`limits.memory_mb` .* positive whole number, not 512.5"),
        ("[limits]\npids = 64.5", "`limits.pids` .* whole number"),
        ("[limits]\ntmpfs_mb = 64.0", "`limits.tmpfs_mb` .* whole number"),
        ("[limits]\nfile_mb = inf", "`limits.file_mb` .* whole number"),
        ("[limits]\nttl_seconds = nan", "`limits.ttl_seconds` .* positive number, not nan"),
        ("[limits]\ncpus = inf", "`limits.cpus` .* positive number, not inf"),
        ("[limits]\ncpus = '2'", "`limits.cpus`"),
        ("limits = 3", "`limits` .* must be a table"),
        ("tools = 'pytest'", "`tools`"),
        ("tools = [", "cannot read"),
    ],
)
def test_wrong_recipe_is_refused_by_name(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sandbox.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        load_recipe("mine", folder=tmp_path)
