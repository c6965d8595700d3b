"""What metadata says, and packages played with what they require."""

from __future__ import annotations

import asyncio
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from selfplay.cache import cache_folder
from selfplay.errors import UserError
from selfplay.games.code import CodeGame, Settings
from selfplay.games.code.needs import needs_of, played_with, wheels_of
from selfplay.games.code.opening import Opening
from selfplay.games.code.source import Repository, fetch
from selfplay.sandbox.environment import tool_versions
from selfplay.sandbox.recipe import load_recipe
from selfplay.sandbox.select import provider_of
from selfplay.sandbox.wheels import Wheel
from selfplay.types import Role

TREE = {"pkg.py": "A = 1\n", "test_pkg.py": "import pkg\n"}
PKG_INFO = """\
Metadata-Version: 2.1
Name: Pkg.Name
Requires-Dist: six>=1.5
Requires-Dist: tomli; python_version < "3.0"
Requires-Dist: hypothesis; extra == "test"

Requires-Dist: words of the description
"""
PYPROJECT = '[project]\nname = "other"\ndependencies = ["attrs>=20", "six"]\n'
SETUP_CFG = "[metadata]\nname = third\n[options]\ninstall_requires =\n    attrs\n    file: requirements.txt\n"


def repository(folder: Path, files: dict[str, str]) -> Repository:
    for path, text in {**TREE, **files}.items():
        (folder / "tree").mkdir(exist_ok=True)
        (folder / "tree" / path).write_text(text)
    return fetch(str(folder / "tree"), cache=folder / "cache")


@pytest.mark.parametrize(
    ("files", "name", "requirements"),
    [
        ({}, None, ()),
        ({"PKG-INFO": PKG_INFO}, "Pkg.Name", ("six>=1.5", 'tomli; python_version < "3.0"')),
        ({"PKG-INFO": "Name: pkg\n", "pyproject.toml": PYPROJECT}, "pkg", ("attrs>=20", "six")),
        ({"pyproject.toml": PYPROJECT, "setup.cfg": SETUP_CFG}, "other", ("attrs>=20", "six")),
        ({"setup.cfg": SETUP_CFG}, "third", ("attrs",)),
        ({"pyproject.toml": "[project\n", "setup.cfg": "no section\n"}, None, ()),
        ({"pyproject.toml": "project = 1\n"}, None, ()),
    ],
)
def test_what_metadata_says(
    tmp_path: Path, files: dict[str, str], name: str | None, requirements: tuple[str, ...]
) -> None:
    needs = needs_of(repository(tmp_path, files))
    assert (needs.distribution, needs.requirements) == (name, requirements)


def test_wheels_are_part_of_the_digest_that_results_are_kept_by(tmp_path: Path) -> None:
    bare = repository(tmp_path, {})
    six = Wheel(name="six", version="1.17.0", filename="six-1.17.0-py2.py3-none-any.whl", sha256="00")
    assert played_with(bare, ()) == bare
    assert played_with(bare, [six]).digest != bare.digest
    assert played_with(bare, [six]) == played_with(bare, [six])


def play(source: str, *, cache: Path, more: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The names of what is played with what it requires, and of the wheels, in a bubblewrap sandbox."""
    wheels = wheels_of(fetch(source, cache=cache), more=more, tools=tool_versions())

    async def main() -> list[str]:
        provider = provider_of("bubblewrap", load_recipe(), wheels=wheels)
        game = CodeGame(
            opening=Opening(source, cache=cache, provider=provider, wheels=wheels, settings=Settings(stdlib=20)),
            proposer=Role(name="injector", game="code", side="proposer", prompt="{{ function }}\n"),
            solver=Role(name="repairer", game="code", side="solver", prompt="{{ function }}\n"),
            config_digest="test",
        )
        try:
            return [seed.payload["qualname"] for seed in await game.seeds()]
        finally:
            await game.aclose()

    return asyncio.run(main()), [wheel.name for wheel in wheels]


@pytest.mark.bubblewrap
def test_a_package_is_played_with_what_it_and_its_tests_require(
    bubblewrap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for name, requires in (("needed", ""), ("testing", "Requires-Dist: mine\n"), ("mine", "")):
        with zipfile.ZipFile(links / f"{name}-1.0-py3-none-any.whl", "w") as packed:
            packed.writestr(f"{name}.py", "def one():\n    return 1\n")
            told = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}"
            packed.writestr(f"{name}-1.0.dist-info/METADATA", told)
            packed.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(links)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "mine.py").write_text("import needed\n\n\ndef two():\n    one = needed.one()\n    return one + one\n")
    (tree / "test_mine.py").write_text("import mine\nimport testing\n\n\ndef test_two():\n    assert mine.two() == 2\n")
    (tree / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["needed"]\n')
    with pytest.raises(UserError, match="No module named 'testing'"):
        play(str(tree), cache=tmp_path / "cache")
    assert play(str(tree), cache=tmp_path / "cache", more=["testing"]) == (["two"], ["needed", "testing"])


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_real_package_with_real_dependencies_is_played(bubblewrap: None) -> None:
    names, wheels = play("pypi:cssselect2==0.8.0", cache=cache_folder())
    assert wheels == ["tinycss2", "webencodings"]
    assert len(names) > 30
