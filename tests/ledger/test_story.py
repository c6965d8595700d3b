"""The story of one task: by index, and nothing left out."""

from __future__ import annotations

import re

import pytest

from selfplay.ledger import Ledger
from selfplay.ledger import story as asked
from selfplay.ledger.story import Child, Round, beginning, minted_by, story


@pytest.fixture
def told(ledger: Ledger, make) -> Ledger:
    """Step 0 mints a task from one proposal and finds it in another; step 1 makes a child of it, step 2 is open."""
    first, copy = make.play(0), make.play(0, index=1)
    task = make.task("p", parent_id=first.id)
    ledger.append(make.seed(), make.choice(terms={"strategy": "removal"}))
    ledger.append(first, copy)
    ledger.append(task, make.verdict(first, "mint", task_id=task.id), make.verdict(copy, "mint", task_id=task.id))
    attempts = [make.play(0, "attempt", i, subject_id=task.id) for i in range(3)]
    ledger.append(*attempts)
    ledger.append(*(make.verdict(attempt, passed=i == 0, reward=1.0) for i, attempt in enumerate(attempts)))
    ledger.append(make.verdict(first, "grade", reward=0.5, task_id=task.id))
    make.close(ledger, 0, groups=[make.group([first, copy], (0.5, 0.5))])
    good, bad = attempts[1:]
    for i, one in enumerate((good, bad)):
        ledger.append(make.choice(1, i, mode="mutate", subject_id=task.id, terms={"attempt": one.id}))
    child = make.task("c", parent_id=good.id, step=1)
    ledger.append(child, make.verdict(good, "mint", task_id=child.id), make.verdict(bad, "mint", valid=False))
    tried = make.play(1, "attempt", subject_id=child.id)
    ledger.append(tried)
    ledger.append(make.verdict(tried, passed=False, reward=-1.0))
    make.close(ledger, 1)
    ledger.append(make.choice(2, mode="replay", subject_id=task.id), make.play(2, "attempt", subject_id=task.id))
    return ledger


def test_a_parents_story(told: Ledger, make) -> None:
    task, child = make.task("p").id, make.task("c").id
    found = told.ask(lambda ask: story(ask, task))
    assert (found.task.id, found.parent_id, found.seed) == (task, None, make.seed())
    assert found.asked is not None
    assert found.asked.terms == {"strategy": "removal"}
    assert [(claim.id == found.task.parent_id, claim.reward) for claim in found.claims] == [(True, 0.5), (False, None)]
    assert all(claim.advantage is not None for claim in found.claims)
    assert [(choice.step, choice.mode) for choice in found.choices] == [(1, "mutate"), (1, "mutate"), (2, "replay")]
    assert found.rounds == (
        Round(step=0, role="solver", closed=True, played=3, decided=3, solved=1),
        Round(step=2, role="solver", closed=False, played=1, decided=0, solved=0),
    )
    assert found.children == (Child(id=child, step=1, decided=1, solved=0),)
    assert sum(found.refused.values()) == 1


def test_a_childs_story(told: Ledger, make) -> None:
    found = told.ask(lambda ask: story(ask, make.task("c").id))
    assert found.parent_id == make.task("p").id
    assert found.asked is not None
    assert (found.asked.mode, found.asked.step) == ("mutate", 1)
    (claim,) = found.claims
    assert (claim.id, claim.stage, claim.step, claim.subject_id) == (
        found.task.parent_id,
        "attempt",
        0,
        found.parent_id,
    )
    assert (claim.reward, claim.advantage) == (None, None)
    assert (found.choices, found.children) == ((), ())


def test_ids_by_their_beginning(told: Ledger, make) -> None:
    both = sorted([make.task("p").id, make.task("c").id])
    assert list(told.ask(lambda ask: beginning(ask, "", limit=9))) == both
    assert told.ask(lambda ask: beginning(ask, both[0], limit=9)) == (both[0],)
    assert told.ask(lambda ask: minted_by(ask, make.play(0).id)) == make.task("p").id
    attempts = [make.play(0, "attempt", i, subject_id=make.task("p").id).id for i in range(2)]
    found = [told.ask(lambda ask, name=name: minted_by(ask, name)) for name in attempts]
    assert found == [None, make.task("c").id]


@pytest.mark.parametrize("name", ["_CLAIMS", "_ASKED", "_CHOSEN", "_ROUNDS", "_CHILDREN", "_REFUSED"])
def test_no_question_reads_a_whole_table(told: Ledger, name: str) -> None:
    sql = getattr(asked, name)
    plan = told.ask(lambda ask: ask(f"EXPLAIN QUERY PLAN {sql}", *(["x"] * sql.count("?"))))
    # note: the newest closed step is the last row of its table, which SQLite calls a search as well.
    assert not [row["detail"] for row in plan if re.match(r"SCAN (?!steps)", row["detail"])]
