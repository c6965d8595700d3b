from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from selfplay.cli.frontier import columns
from selfplay.config import load
from selfplay.ledger import Ledger
from selfplay.project import find_project

Typed = tuple[int, str, str]


@pytest.mark.parametrize(
    ("last", "expected"),
    [(-1, ()), (0, (0,)), (1, (0, 1)), (2, (0, 1, 2)), (3, (0, 1, 2, 3)), (19, (4, 9, 14, 19)), (20, (4, 9, 14, 20))],
)
def test_quarters_of_the_run(last: int, expected: tuple[int, ...]) -> None:
    assert columns(last) == expected


def test_the_screen(with_replays: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("frontier", "again")
    assert code == 0, err
    assert out.startswith("again · frontier · frontier · after step 2\n")
    assert all(len(row) <= 80 for row in out.splitlines())
    assert "\x1b" not in out
    assert "selfplay why again TASK" in err


def test_every_task_is_in_one_bin(
    with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    data = answered("frontier", "again")
    with Ledger.read(with_replays / "runs" / "again") as reader:
        played = {one.subject_id for step in range(3) for one in reader.trajectories(step, "attempt")}
    last = data["steps"][-1]
    assert (last["step"], last["tasks"], sum(last["bins"])) == (2, len(played), len(played))
    assert sum(cell["tasks"] for cell in data["cells"]) == len(played)
    assert data["reward"]["pays_most_at"] is not None
    earlier = answered("frontier", "again", "--step", "0")["steps"]
    assert [step["step"] for step in earlier] == [0]
    assert earlier[0] == data["steps"][0]


def test_the_picture(with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, _, err = typed("frontier", "again", "--svg", "out.svg")
    assert code == 0
    assert "drawn     out.svg" in err
    first = (with_replays / "out.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert answered("frontier", "again", "--svg", "out.svg")["svg"] == "out.svg"
    assert (with_replays / "out.svg").read_text(encoding="utf-8") == first


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["again", "--step", "9"], 2, "step 9 of run `again` is not closed, its newest closed one is 2"),
        (["again", "--svg", "no/where.svg"], 3, "cannot write no/where.svg: No such file or directory"),
        (["nope"], 2, "no run `nope` in"),
    ],
)
def test_bad_input(with_replays: Path, typed: Callable[..., Typed], words: list[str], code: int, message: str) -> None:
    found, out, err = typed("frontier", *words)
    assert (found, out) == (code, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err


def test_a_run_without_tasks(here: Path, typed: Callable[..., Typed]) -> None:
    config = load("demo", project=find_project(explicit=None), environ={})
    folder = here / "runs" / "new"
    Ledger.create(folder, config_digest="0" * 32, config=config.values(), seed=0, game="echo").close()
    for words, message in (
        (["frontier", "new"], "no task of run `new` was played in a closed step yet"),
        (["frontier", "new", "--step", "0"], "no step of run `new` is closed yet"),
        (["why", "new", "ab"], "run `new` has no task yet"),
    ):
        code, out, err = typed(*words)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {message}\n\nhint: ")
