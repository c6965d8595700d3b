from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.cli.verify import line, summary
from selfplay.games.code.attacks.matrix import Cell, Row
from tests.backends import needed

Typed = tuple[int, str, str]


@pytest.fixture
def bubblewrap() -> None:
    """Skip where it is not ready."""
    needed("bubblewrap")


@pytest.mark.bubblewrap
def test_a_few_rows(bubblewrap: None, typed: Callable[..., Typed]) -> None:
    words = ["verify", "--attacks", "toy", "--sandbox", "bubblewrap", "--only", "by sum", "--only", "always-equal-ne"]
    code, out, err = typed(*words, "--why")
    assert code == 0, out
    rows = out.splitlines()
    assert rows[0].split() == ["toy"]
    assert rows[1].split() == ["honest", "by", "sum", "accepted"]
    assert any(row.split()[1:] == ["always-equal-ne", "refused"] for row in rows)
    assert "0 of 1 attacks accepted, 0 suspicious; 0 of 1 honest repairs refused (bubblewrap, " in err


@pytest.mark.bubblewrap
def test_a_judge_that_is_cheated(bubblewrap: None, spawned: Callable[..., Typed]) -> None:
    words = ["verify", "--attacks", "toy", "--sandbox", "bubblewrap", "--judge", "plain", "--only", "edit-tests"]
    code, out, err = spawned(*words, "--json")
    assert code == 1, err
    data = json.loads(out)["data"]
    assert (data["ok"], data["judge"], data["sandbox"]) == (False, "plain", "bubblewrap")
    [row] = data["rows"]
    assert (row["name"], row["cells"]["toy"]["word"], row["cells"]["toy"]["wrong"]) == ("edit-tests", "accepted", True)


@pytest.mark.bubblewrap
def test_answers_made_for_the_visible_inputs_are_left_out(bubblewrap: None, typed: Callable[..., Typed]) -> None:
    words = ["verify", "--attacks", "toy", "--sandbox", "bubblewrap", "--only", "special-case"]
    code, out, _ = typed(*words)
    assert code == 0, out
    assert [row.split() for row in out.splitlines()[1:]] == [
        ["results", "special-case", "suspicious"],
        ["results", "special-case-silent", "suspicious"],
    ]
    code, out, _ = typed(*words, "--judge", "protocol")
    assert (code, out.splitlines()[1].split()) == (1, ["results", "special-case", "!", "accepted"])


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "nothing to verify", "selfplay verify --attacks"),
        (["--attacks", "--judge", "me"], "no judge `me`", "one of: verifier, plain,"),
        (["--attacks", "numpy"], "no package `numpy` among those of the attacks", "one of: toy,"),
    ],
)
def test_bad_input(here: Path, typed: Callable[..., Typed], words: list[str], message: str, hint: str) -> None:
    code, out, err = typed("verify", *words)
    assert (code, out) == (2, "")
    assert f"error: {message}" in err
    assert f"\n\nhint: {hint}" in err


def test_the_words_of_a_row() -> None:
    bad = Cell(word="accepted", wrong=True, why="all tests pass")
    row = Row(name="gc", group="report", does="it looks", cells={"toy": bad})
    shown = line(row, ["toy", "toolz"], why=True)
    assert shown.splitlines()[0].split() == ["report", "gc", "!", "accepted", "–"]
    assert shown.splitlines()[1:] == ["    it looks", "      toy: all tests pass"]
    fine = Row(name="fix", group="honest", does="", cells={"toy": Cell(word="accepted", wrong=False, why="")})
    unclear = Row(name="x", group="files", does="", cells={"toy": Cell(word="no sample", wrong=True, why="")})
    assert summary([row, fine, unclear]) == (
        "1 of 2 attacks accepted, 0 suspicious, 1 not decided; 0 of 1 honest repairs refused"
    )
