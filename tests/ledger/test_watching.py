"""The newest rows and what steps spent: by index, and every row once."""

from __future__ import annotations

import re
from functools import partial

import pytest

from selfplay.ledger import Ledger, watching
from selfplay.types import Fault


@pytest.fixture
def played(ledger: Ledger, make) -> Ledger:
    """Step 0 is closed; step 1 is open, with a refused and a faulty proposal and a child of step 0's failed attempt."""
    make.step(ledger, 0)
    failed = next(one for one in ledger.trajectories(0, "attempt") if one.index == 1)
    refused, broken = make.play(1), make.play(1, index=1, fault=Fault(culprit="policy", where="x", message="gone"))
    task = ledger.tasks(0)[0]
    ledger.append(make.choice(1), make.choice(1, 1, mode="replay", subject_id=task.id))
    ledger.append(make.choice(1, 2, mode="mutate", subject_id=task.id, terms={"attempt": failed.id}))
    ledger.append(refused, broken, make.verdict(refused, "mint", valid=False, reason="other", why="no", seconds=2.5))
    child = make.task("child", parent_id=failed.id, step=1)
    ledger.append(child, make.verdict(failed, "mint", reason="valid", task_id=child.id, seconds=1.0))
    return ledger


def test_newest_plays(played: Ledger) -> None:
    found = played.ask(partial(watching.newest_plays, limit=10))
    assert [(one.step, one.stage, one.broken, one.valid, one.passed, one.reason) for one in found] == [
        (1, "propose", True, None, None, None),
        (1, "propose", False, False, None, "other"),
        (0, "attempt", False, True, False, "other"),
        (0, "attempt", False, True, True, "equal"),
        (0, "propose", False, True, None, "ok"),
    ]
    assert [one.reward for one in found] == [None, None, -1.0, 1.0, 0.1]
    assert played.ask(partial(watching.newest_plays, limit=2)) == found[:2]


def test_outcomes_leave_out_what_broke(played: Ledger) -> None:
    found = played.ask(partial(watching.outcomes, stage="propose", steps=(0, 1)))
    assert [(one.step, one.valid) for one in found] == [(0, True), (1, False)]
    assert len(played.ask(partial(watching.outcomes, stage="attempt", steps=(0,)))) == 2


def test_choices_and_what_the_open_step_is_made_of(played: Ledger) -> None:
    newest = played.ask(partial(watching.newest_choices, limit=2))
    assert [(one.step, one.index, one.mode) for one in newest] == [(1, 2, "mutate"), (1, 1, "replay")]
    assert played.ask(partial(watching.asked, step=1)) == watching.Asked(proposals=1, children=1, replays=1, tasks=1)
    (task,) = played.tasks(0)
    assert played.ask(partial(watching.most_replayed, limit=3)) == (task.id,)


def test_spent(played: Ledger, make) -> None:
    # note: each play has two replies and a call of a quarter of a second; the open step does not count.
    expected = watching.Spent(tasks=1, replies=6, tools=0.75, calls=3, refused={})
    assert played.ask(partial(watching.spent, since=0, before=9)) == {0: expected}
    make.close(played, 1)
    found = played.ask(partial(watching.spent, since=1, before=9))
    assert found == {1: watching.Spent(tasks=1, replies=4, tools=0.5, calls=2, deciding=3.5, refused={"other": 1})}


def test_learnt(played: Ledger) -> None:
    (found,) = played.ask(partial(watching.learnt, after=-1))
    assert (found.step, found.policy_version, found.loss, found.metrics) == (0, 1, 0.5, {"entropy": 1.5})
    assert played.ask(partial(watching.learnt, after=0)) == ()


SMALL = re.compile(r"SCAN (steps|s|updates|t)\b|USE TEMP B-TREE FOR ORDER BY")
"""What a plan may do: tables with a row a step; the newest rows of a table, read from its end."""


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        (watching._NEWEST_PLAYS, (5,)),
        (watching._OUTCOMES, (1, "attempt")),
        (watching._MODES, (1,)),
        (watching._TASKS, (0, 9)),
        (watching._TOOLS, (0, 9)),
        (watching._REFUSED, (0, 9)),
        (watching._REPLAYED, (5,)),
    ],
)
def test_no_question_reads_a_table(played: Ledger, sql: str, given: tuple[object, ...]) -> None:
    plan = [row["detail"] for row in played.ask(lambda ask: ask(f"EXPLAIN QUERY PLAN {sql}", *given))]
    assert [step for step in plan if step.startswith("SCAN") and not SMALL.match(step)] == []
    if sql is not watching._NEWEST_PLAYS:
        assert not any(step.startswith("SCAN t") for step in plan)
