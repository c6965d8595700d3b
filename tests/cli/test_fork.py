"""`selfplay run --fork`: typed."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger

Typed = tuple[int, str, str]

OTHER = ("-s", "learner.lr=0.002")


def files(folder: Path) -> list[Path]:
    """Everything below it but what SQLite makes for readers."""
    return sorted(path for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm")))


def test_a_refused_change_offers_a_fork_that_works(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("run", "--name", "toy", *OTHER)
    assert code == 2
    (offer,) = (row for row in err.splitlines() if "or start from its weights: " in row)
    words = shlex.split(offer.split(": ", 1)[1])
    assert words == ["selfplay", "run", "-s", "learner.lr=0.002", "--fork", "toy", "--name", "toy-2"]
    code, _, err = typed(*words[1:], "--steps", "1")
    assert code == 0, err
    assert "toy-2: forked from toy@1, weights v" in err
    assert typed("check", "toy-2")[0] == 0
    code, out, _ = typed("status", "toy-2")
    assert "forked from toy@1" in out
    code, _, err = typed(*words[1:], "--steps", "2")
    assert code == 0, err
    assert "toy-2: 2 of 2 steps, done" in err
    code, _, err = typed("run", "--name", "toy-2", "--steps", "3")
    assert code == 0, err


def test_the_parents_records_are_shown(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    assert typed("run", "--fork", "toy@1", "--name", "child", *OTHER, "--steps", "1")[0] == 0
    with Ledger.read(with_run / "runs" / "toy") as reader:
        old = reader.trajectories(0, "propose")[0].id
    assert answered("inspect", "child", old)["proposal"]["id"] == old
    assert answered("status", "child")["forked_from"] == "toy@1"
    assert answered("status", "toy")["forked_from"] is None


def test_the_same_command_goes_on_without_the_parents_save_and_without_the_parent(
    with_run: Path, typed: Callable[..., Typed]
) -> None:
    parent = with_run / "runs" / "toy"
    # note: a name that begins with the parent's, which alone means the fork once the parent is deleted.
    words = ["run", "--fork", "toy@1", "--name", "toy-colder", *OTHER]
    assert typed(*words, "--steps", "1")[0] == 0
    shutil.rmtree(parent / "weights")
    code, _, err = typed(*words, "--steps", "2")
    assert code == 0, err
    assert "toy-colder: forked from toy@1, weights v" in err
    shutil.rmtree(parent)
    code, _, err = typed(*words, "--steps", "3")
    assert code == 0, err
    assert "toy-colder: 3 of 3 steps, done" in err
    code, _, err = typed("run", "--fork", "toy@0", *words[3:], "--plan")
    assert code == 2
    assert "there is a run `toy-colder` already, and it is a fork of toy@1" in err
    code, _, err = typed(*words, "-s", "learner.lr=0.5", "--plan")
    assert code == 2
    assert "run `toy-colder` was started with other settings" in err


def test_a_plan_makes_nothing(with_run: Path, typed: Callable[..., Typed]) -> None:
    before = files(with_run)
    code, _, err = typed("run", "--fork", "toy", "--name", "child", *OTHER, "--plan")
    assert code == 0, err
    assert "child: forked from toy@1" in err
    assert files(with_run) == before


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--fork", "tyo", "--name", "child", *OTHER], "no run `tyo`", "did you mean `toy`?"),
        (["--fork", "toy@9", "--name", "child", *OTHER], "run `toy` has no save after step 9", "the near"),
        (["--fork", "toy@x", "--name", "child", *OTHER], "`toy@x` has no step behind the `@`", "a number"),
        (["--fork", "toy", *OTHER], "a fork is another run and needs a name", "add --name toy-2"),
        (["--fork", "toy", "--name", "child"], "nothing differs from the settings of run `toy`", "change a"),
        (["quickstart", "--fork", "toy", "--name", "child"], "run `toy` has weights of `toy`", "keep the"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    with_run: Path, typed: Callable[..., Typed], words: list[str], message: str, hint: str
) -> None:
    before = files(with_run)
    code, _, err = typed("run", *words)
    assert code == 2, err
    assert err.startswith(f"error: {message}")
    assert f"hint: {hint}" in err
    assert files(with_run) == before
