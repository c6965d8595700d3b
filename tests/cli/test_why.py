from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli.beliefs import Lens, believed, lens_of
from selfplay.cli.why import standing
from selfplay.curriculum.presets import FRONTIER
from selfplay.ledger import Ledger
from selfplay.ledger.story import Child, Story, story

Typed = tuple[int, str, str]


@pytest.fixture
def task(with_replays: Path) -> str:
    """A task that was tried in the first two steps."""
    with Ledger.read(with_replays / "runs" / "again") as reader:
        return reader.known_tasks(since=0, before=2)[-1].id


def test_the_numbers_are_the_ledgers(
    with_replays: Path, task: str, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    data = answered("why", "again", task)
    with Ledger.read(with_replays / "runs" / "again") as reader:
        known = next(one for one in reader.known_tasks(since=0, before=9) if one.id == task)
        minted = reader.task(task)
        assert minted is not None
        assert minted.parent_id is not None
        asked = next(c for c in reader.choices(minted.step) if c.subject_id == minted.seed_id)
        again = [(c.step, c.why) for step in range(3) for c in reader.choices(step) if c.subject_id == task]
        grade = next(v for v in reader.verdicts_of(minted.parent_id) if v.stage == "grade")
    assert [(s["step"], s["decided"], s["solved"]) for s in data["steps"]] == [
        (play.step, play.decided, play.solved) for play in known.plays
    ]
    assert (data["asked"]["why"], data["asked"]["score"]) == (asked.why, asked.score)
    assert next(p["reward"] for p in data["proposals"] if p["minted"]) == grade.reward
    now = data["now"]
    assert 0.0 <= now["low"] < now["mean"] < now["high"] <= 1.0
    replays = [row for row in data["choices"] if row["mode"] == "replay"]
    assert data["standing"]["code"] == ("evicted" if len(replays) >= FRONTIER.max_replays else "open")
    assert [(row["step"], row["why"]) for row in replays] == again
    # note: what the choice said was expected is what is believed after the step before it.
    known_then = {row["step"]: row["believed"]["mean"] for row in data["steps"]}
    assert all(f"{known_then[step - 1]:.2f} ± " in why for step, why in again if step - 1 in known_then)
    code, out, err = typed("why", "again", task[:12])
    assert (code, err) == (0, "")
    assert out.startswith(f"task {task[:12]} · step ")
    assert asked.why[:30] in out
    assert all(len(row) <= 80 for row in out.splitlines())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["again", "zzzz"], "no task of run `again` has an id that begins with `zzzz`"),
        (["again", ""], "no task of run `again` has an id that begins with ``"),
        (["nope", "ab"], "no run `nope` in"),
    ],
)
def test_bad_input(with_replays: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("why", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err


def test_a_proposals_id_leads_to_its_task(with_replays: Path, task: str, typed: Callable[..., Typed]) -> None:
    with Ledger.read(with_replays / "runs" / "again") as reader:
        minted = reader.task(task)
        assert minted is not None
    assert minted.parent_id is not None
    code, _, err = typed("why", "again", minted.parent_id)
    assert code == 2
    assert err.endswith(f"not a task\n\nhint: selfplay why again {task[:12]}\n")
    code, _, err = typed("why", "again", minted.seed_id)
    assert code == 2
    assert err.endswith(f"not a task\n\nhint: selfplay inspect again {minted.seed_id[:12]}\n")


def test_an_ambiguous_beginning(with_replays: Path, task: str, typed: Callable[..., Typed]) -> None:
    other = task[:-1] + ("0" if task[-1] != "0" else "1")
    # note: no two tasks of a small run begin alike, so one is written beside the first.
    with sqlite3.connect(with_replays / "runs" / "again" / "ledger.db") as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(tasks)")]
        kept = ", ".join(name for name in names if name not in ("id", "key", "step"))
        sql = f"INSERT INTO tasks (id, key, step, {kept}) SELECT ?, 'other', 3, {kept} FROM tasks WHERE id = ?"
        connection.execute(sql, (other, task))
    connection.close()
    code, _, err = typed("why", "again", task[:20])
    assert code == 2
    assert err.startswith(f"error: `{task[:20]}` begins more than one task's id: {task[:24]}, {task[:24]}\n\nhint: ")
    assert typed("why", "again", task)[0] == 0


def lens(name: str, **options: object) -> Lens:
    return lens_of({"curriculum.choose": name, "curriculum.options": options})


@pytest.mark.parametrize(
    ("through", "solved", "code", "words"),
    [
        (lens("frontier", give_up=0), 3, "open", "likely to be broken; where that beats a new task"),
        (lens("frontier", max_replays=1), 3, "evicted", "evicted: 1 replays, of at most 1 (max_replays)"),
        (lens("frontier", max_replays=0, retire=0.0), 3, "retired", "is above 0 (retire)"),
        (lens("frontier"), 0, "hopeless", "left alone: 2 plays failed whole, where 1 is enough (give_up)"),
        (lens("frontier", probation=0.1), 0, "probation", "on probation: 2 plays failed whole"),
        (lens("uniform"), 3, "never", "curriculum uniform plays no task again"),
        (lens("some.other:function"), 3, "open", "is not of this package"),
        (lens("ssr"), 3, "open", "may be the parent of a second-order task"),
        (lens("ssp"), 3, "open", "in the pool since step 0"),
        (lens("ssp", clear=2), 3, "cleared", "cleared: the pool holds tasks minted since step 2"),
        (lens("ssp", refill="dummy"), 3, "never", "never replayed: refill is dummy"),
        (lens("ssp", threshold=0.1), 3, "retired", "retired: its last solve rate is above 0.1"),
    ],
)
def test_may_it_be_played_again(
    with_replays: Path, task: str, through: Lens, solved: int, code: str, words: str
) -> None:
    told, seen = _looked(with_replays, task, through)
    one = next(one for one in seen.candidates if one.task.id == task)
    plays = tuple(replace(one.task.plays[0], step=step, decided=8, solved=solved) for step in (0, 1))
    one = replace(one, task=replace(one.task, plays=plays, step=0))
    seen = replace(seen, candidates=(one,))
    told = replace(told, task=replace(told.task, step=0))
    assert standing(one, seen, through, story=told, next_step=2)[0] == code
    assert words in standing(one, seen, through, story=told, next_step=2)[1]


def test_what_fell_out_of_the_window_and_second_order_tasks(with_replays: Path, task: str) -> None:
    told, seen = _looked(with_replays, task, lens("frontier"))
    assert standing(None, seen, lens("frontier"), story=told, next_step=99)[0] == "forgotten"
    for other in (
        replace(told, parent_id="p"),
        replace(told, children=(Child(id="c", step=1, decided=0, solved=0),)),
    ):
        assert standing(None, seen, lens("ssr"), story=other, next_step=2)[0] == "never"


def _looked(project: Path, task: str, through: Lens) -> tuple[Story, Any]:
    with Ledger.read(project / "runs" / "again") as reader:
        told = reader.ask(lambda ask: story(ask, task))
        return told, believed(reader, reader.seeds(), through, after=1)
