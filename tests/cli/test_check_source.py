"""`selfplay check REPOSITORY`: what is special is said, with what follows; and whether it can be played."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends import needed
from tests.games.code.conftest import write

Typed = tuple[int, str, str]
TEST = "from pkg.core import twice\n\n\ndef test_twice():\n    assert twice(2) == 4\n"
FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/core.py": "def twice(x):\n    y = x * 2\n    return y\n",
    "tests/test_core.py": TEST,
    "tox.ini": "[tox]\nenvlist = py\n",
}


def test_a_folder_is_read_without_running_it(here: Path, typed: Callable[..., Typed]) -> None:
    write(here / "repo", FILES)
    for words in (["repo"], ["./repo"], [str(here / "repo")]):
        code, out, _ = typed("check", *words, "--read-only")
        assert code == 0
        assert out.startswith("repo: 4 files, ")
        names = [line[2:].partition(":")[0] for line in out.splitlines() if line[:2] in ("· ", "! ")]
        assert names == ["src layout", "tox or nox", "no git history"]
        assert out.count("\n  -> ") == 3


def test_what_does_not_go_together(here: Path, with_run: Path, typed: Callable[..., Typed]) -> None:
    write(here / "repo", FILES)
    for words, message in (
        (["repo", "--salvage", "x"], "--salvage is for runs"),
        (["toy", "--read-only"], "are for repositories"),
        (["nowhere"], "no run `nowhere`"),
    ):
        code, _, err = typed("check", *words)
        assert (code, message in err) == (2, True), err
    (here / "empty").mkdir()
    code, _, err = typed("check", "empty")
    assert (code, "has no Python source" in err) == (2, True)


@pytest.mark.bubblewrap
def test_its_tests_are_run(here: Path, spawned: Callable[..., Typed]) -> None:
    needed("bubblewrap")
    write(here / "repo", FILES)
    code, out, err = spawned("check", "repo", "--sandbox", "bubblewrap", "--json")
    assert code == 0, err
    data = json.loads(out)["data"]
    assert (data["ok"], data["seeds"], data["stable_tests"], data["problem"]) == (True, 1, 1, None)
    assert [fact["name"] for fact in data["facts"]] == ["src layout", "tox or nox", "no git history"]
    (here / "repo" / "tests" / "test_core.py").write_text(TEST.replace("4", "5"))
    code, out, err = spawned("check", "repo", "--sandbox", "bubblewrap")
    assert code == 1
    assert "cannot be played: no test of `repo` passes on the clean tree" in out
