"""A part of the tests is held back: what a solver is told lacks it, and gives back the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from selfplay.games.code import patches
from selfplay.games.code.agentic import TreeBug
from selfplay.games.code.artifact import Artifact, contents, diff_of
from selfplay.games.code.hidden import Told, held_back
from selfplay.games.code.source import Repository, fetch
from tests.games.code.conftest import write

TESTS = """\
import pkg


def test_a():
    assert pkg.one() == 1


def test_b():
    assert pkg.two() == 2


class TestC:
    def test_c(self):
        assert pkg.one() == 1

    def test_d(self):
        assert pkg.two() == 2


def test_e():
    assert pkg.one() + pkg.two() == 3
"""
NAMES = ("test_a", "test_b", "TestC::test_c", "TestC::test_d", "test_e")
FAILING = {f"tests/test_p.py::{name}": "assert" for name in NAMES}
GONE = TESTS.replace("def test_b():\n    assert pkg.two() == 2\n\n\n", "").replace(
    "    def test_d(self):\n        assert pkg.two() == 2\n", ""
)
"""test_b and TestC::test_d are gone."""
LOOSE = GONE.replace("    assert pkg.one() + pkg.two() == 3", "    pkg.one() + pkg.two()").replace(
    "def test_a():\n    assert pkg.one() == 1", "def test_a():\n    pkg.one()"
)
"""And test_a and test_e are looser: of five, test_c is as it was."""


def repository(folder: Path) -> Repository:
    files = {"pkg.py": "def one():\n    return 1\n\n\ndef two():\n    return 2\n", "tests/test_p.py": TESTS}
    return fetch(str(write(folder / "p", files)), cache=folder / "cache")


def bug(kept: Repository, weak: str, failing: Mapping[str, str] = FAILING) -> TreeBug:
    files: Mapping[str, bytes | None] = {"tests/test_p.py": weak.encode()}
    clean = contents(kept, files)
    return TreeBug(
        artifact=Artifact(test_files=("tests/test_p.py",), bug="", weakening=diff_of(clean, files)),
        code={},
        weak=files,
        tests=tuple(failing),
        failing=failing,
        specification=diff_of(files, clean),
        touched=("pkg.py::one",),
    )


def shown(told: Told, weak: str) -> str:
    """The test file after a solver applied its specification."""
    found = patches.parse(told.specification.encode())
    assert not isinstance(found, patches.Refusal), found
    made = patches.apply(found, tree={"tests/test_p.py": weak.encode()})
    assert not isinstance(made, patches.Refusal), made
    content = made.files["tests/test_p.py"]
    assert content is not None
    return content.decode()


def test_of_four_that_were_changed_a_half_is_hidden(tmp_path: Path) -> None:
    kept = repository(tmp_path)
    seen = set()
    for key in map(str, range(12)):
        told = held_back(bug(kept, LOOSE), repository=kept, share=0.5, key=key)
        assert told == held_back(bug(kept, LOOSE), repository=kept, share=0.5, key=key)
        assert len(told.hidden) == 2
        assert "tests/test_p.py::TestC::test_c" not in told.hidden, "it was left alone"
        text = shown(told, LOOSE)
        bodies = {
            "test_a": "    assert pkg.one() == 1\n\n\n",
            "test_b": "def test_b",
            "TestC::test_d": "def test_d",
            "test_e": "== 3",
        }
        for name, body in bodies.items():
            hidden = f"tests/test_p.py::{name}" in told.hidden
            part = text.partition("class TestC")[0] if name == "test_a" else text
            assert (body in part) is not hidden, (name, text)
        seen.add(told.hidden)
    assert len(seen) > 2


def test_nothing_is_hidden_where_nothing_is_asked_or_one_is_left(tmp_path: Path) -> None:
    kept = repository(tmp_path)
    whole = bug(kept, GONE)
    assert held_back(whole, repository=kept, share=0.0, key="k") == Told(specification=whole.specification)
    one = bug(kept, GONE, {"tests/test_p.py::test_b": "assert"})
    assert held_back(one, repository=kept, share=0.9, key="k").hidden == ()
    most = held_back(whole, repository=kept, share=0.9, key="k")
    assert len(most.hidden) == 1, "at least one stays public"
    assert most.specification


def test_sets_of_parameters_go_together_and_other_files_stay(tmp_path: Path) -> None:
    kept = repository(tmp_path)
    failing = {f"tests/test_p.py::test_b[{i}]": "assert" for i in range(3)} | {"tests/test_p.py::test_e": "assert"}
    told = held_back(bug(kept, LOOSE, failing), repository=kept, share=0.5, key="k")
    assert len(told.hidden) in (1, 3)
    removed = bug(kept, LOOSE)
    gone = held_back(
        TreeBug(**{**{f: getattr(removed, f) for f in removed.__slots__}, "weak": {"tests/test_p.py": None}}),
        repository=kept,
        share=0.5,
        key="k",
    )
    assert gone.hidden == (), "a file that is gone whole is shown whole"


def test_what_cannot_be_parsed_is_shown(tmp_path: Path) -> None:
    kept = repository(tmp_path)
    told = held_back(bug(kept, "def broken(:\n"), repository=kept, share=0.5, key="k")
    assert len(told.hidden) == 2, "the weak file need not be Python: what is gone is gone"
    assert "def test_c" in shown(told, "def broken(:\n")
