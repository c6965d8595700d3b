from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.errors import NotFound, UserError
from selfplay.sandbox.recipe import load_recipe


def test_shipped_recipe_and_its_spec() -> None:
    recipe = load_recipe("python")
    assert (recipe.folder / "Dockerfile").is_file()
    spec = recipe.spec(memory_mb=64, archive="/a.tar")
    assert (spec.name, spec.memory_mb, spec.pids, spec.archive) == ("python", 64, 256, "/a.tar")


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
        ("tools = 'pytest'", "`tools`"),
        ("tools = [", "cannot read"),
    ],
)
def test_wrong_recipe_is_refused_by_name(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sandbox.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        load_recipe("mine", folder=tmp_path)
