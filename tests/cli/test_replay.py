from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = tuple[int, str, str]


def test_for_people(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, _ = typed("replay", "toy", "1")
    assert code == 0
    rows = out.splitlines()
    assert rows[0].startswith("step 1, from the weights that the run began with and ")
    assert rows[1].startswith("sampler  ")
    assert "equal in tokens and log-probabilities" in rows[1]
    assert rows[2].startswith("learner  weights equal (")
    assert " a second" in rows[1]
    assert " a second" in rows[2]


def test_for_programs(with_run: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("replay", "toy", "0", "--without-sampler", "--json")
    assert code == 0, err
    message = json.loads(out)
    assert message["schema"] == "selfplay.replay/1"
    assert (message["data"]["equal"], message["data"]["sampler"]) == (True, None)
    assert message["data"]["learner"]["again"] == message["data"]["learner"]["recorded"]


def test_a_difference_is_exit_code_1(with_run: Path, typed: Callable[..., Typed]) -> None:
    path = with_run / "runs" / "toy" / "ledger.db"
    with sqlite3.connect(path) as connection:
        # note: the ledger's own triggers refuse to change a row.
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE updates SET weights_digest = 'other', fingerprint = 'torch 1.0' WHERE step = 0")
    connection.close()
    code, out, err = typed("replay", "toy", "0", "--without-sampler")
    assert code == 1
    assert "where other follow" in out
    assert "recorded with other software or another kind of processor" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "9"], "step 9 of run `toy` is not closed: the newest is 1"),
        (["toy", "1", "--without-learner", "--without-sampler"], "--without-learner and --without-sampler leave"),
        (["nope", "1"], "no run `nope` in"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("replay", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err


def test_a_run_whose_saves_are_gone(with_run: Path, typed: Callable[..., Typed]) -> None:
    shutil.rmtree(with_run / "runs" / "toy" / "weights")
    assert typed("replay", "toy", "1")[0] == 0


def test_the_sampler_alone(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, _ = typed("replay", "toy", "0", "--without-learner")
    assert code == 0
    assert [row.split()[0] for row in out.splitlines()] == ["step", "sampler"]
