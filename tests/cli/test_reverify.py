from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = tuple[int, str, str]


@pytest.mark.bubblewrap
def test_for_people_and_programs(here: Path, code_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("reverify", "code", "--limit", "1")
    assert (code, out) == (0, "")
    assert "1 attempt judged again: 0 changed, 1 equal to their records but for times" in err


@pytest.mark.bubblewrap
def test_the_data(here: Path, code_run: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("reverify", "code", "--tasks", "--limit", "1", "--json")
    assert code == 0, err
    message = json.loads(out)
    assert (message["schema"], message["run"]) == ("selfplay.reverify/1", "code")
    assert message["data"] == {"what": "tasks", "total": 1, "identical": 1, "undecided": 0, "changed": []}


def test_the_toy_game_has_no_bugs(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("reverify", "toy", "--tasks")
    assert code == 2
    assert err.startswith("error: the game `echo` has no bugs to prove again\n\nhint: selfplay reverify toy")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["nope"], "no run `nope` in"), (["toy", "--limit", "0"], "invalid value for '--limit'")],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("reverify", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
