"""What curricula ask: counts of closed steps within the window, by index."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.curriculum import frontier, ssr, uniform
from selfplay.ledger import Ledger, curricula
from selfplay.ledger.curricula import Played, Proposed
from selfplay.types import Stop, Verdict


def replayed(make, ledger: Ledger, step: int, task, *, solved: int, terms: dict[str, object] | None = None) -> None:
    """A step that replays `task` with two attempts."""
    ledger.append(make.choice(step, mode="replay", subject_id=task.id, terms=terms or {}))
    attempts = [make.play(step, "attempt", i, subject_id=task.id) for i in range(2)]
    for i, attempt in enumerate(attempts):
        ledger.append(attempt)
        ledger.append(make.verdict(attempt, passed=i < solved, reward=1.0))
    make.close(ledger, step, groups=[make.group(attempts, (1.0, -1.0))])


@pytest.fixture
def played(ledger: Ledger, make) -> Ledger:
    """Steps 0 and 1 mint a task each, 2 and 3 replay the first, the last with a hint; step 4 is open."""
    make.step(ledger, 0)
    make.step(ledger, 1)
    first = make.task("word 0")
    replayed(make, ledger, 2, first, solved=2)
    replayed(make, ledger, 3, first, solved=0, terms={"hint": True})
    ledger.append(make.choice(4), make.play(4), make.play(4, "attempt", subject_id=first.id))
    return ledger


def test_tasks_come_with_all_their_plays_in_closed_steps(played: Ledger, make) -> None:
    first, second = played.known_tasks(since=0, before=9)
    assert (first.id, first.seed_id, first.step, first.role) == (make.task("word 0").id, "s0", 0, "solver")
    assert (first.strategy, first.parent_id) == ("", None)
    assert first.plays == (
        Played(step=0, decided=2, solved=1),
        Played(step=2, decided=2, solved=2),
        Played(step=3, decided=2, solved=0, hinted=True),
    )
    assert [play.step for play in second.plays] == [1]


def test_what_was_played_last_before_the_window_is_forgotten_and_the_rest_is_whole(played: Ledger) -> None:
    (only,) = played.known_tasks(since=2, before=9)
    assert [play.step for play in only.plays] == [0, 2, 3]
    assert [play.step for play in played.known_tasks(since=0, before=3)[0].plays] == [0, 2]
    assert played.known_tasks(since=0, before=0) == ()


def test_strategies_and_parents_come_from_the_choice_that_asked(ledger: Ledger, make) -> None:
    proposal = make.play(0)
    parent = make.task("p", parent_id=proposal.id)
    ledger.append(make.seed(), make.choice(terms={"strategy": "removal"}))
    ledger.append(proposal)
    ledger.append(parent, make.verdict(proposal, "mint", task_id=parent.id))
    attempt = make.play(0, "attempt", subject_id=parent.id)
    ledger.append(attempt)
    ledger.append(make.verdict(attempt, passed=False, reward=-1.0))
    make.close(ledger, 0)
    child = make.task("c", parent_id=attempt.id, step=1)
    terms = {"attempt": attempt.id, "strategy": "second-order"}
    ledger.append(make.choice(1, mode="mutate", subject_id=parent.id, terms=terms))
    ledger.append(child, make.verdict(attempt, "mint", task_id=child.id))
    second = make.play(1, "attempt", subject_id=child.id)
    ledger.append(second)
    ledger.append(make.verdict(second, passed=True, reward=1.0))
    make.close(ledger, 1)
    found = {task.id: task for task in ledger.known_tasks(since=0, before=9)}
    assert (found[parent.id].strategy, found[parent.id].parent_id) == ("removal", None)
    assert (found[child.id].strategy, found[child.id].parent_id) == ("second-order", parent.id)
    assert ledger.failed_attempts(parent.id, before=1) == (attempt.id,)
    assert ledger.failed_attempts(parent.id, before=9) == (), "it was chosen for a child in step 1"
    assert ledger.failed_attempts(parent.id, before=0) == ledger.failed_attempts(child.id, before=9) == ()
    asked = Proposed(choices=1, decided=1, valid=1, reasons={})
    assert ledger.proposals(since=1, before=9) == {parent.id: asked}
    assert ledger.choices(1)[0].terms == terms


def test_proposals_are_counted_with_the_reasons_of_their_rejection(played: Ledger, make) -> None:
    assert played.proposals(since=0, before=9) == {"s0": Proposed(choices=2, decided=2, valid=2, reasons={})}
    refused = make.play(4)
    played.append(make.verdict(refused, "mint", valid=False, reason="flaky"))
    make.close(played, 4)
    assert played.proposals(since=4, before=9) == {"s0": Proposed(choices=1, decided=1, valid=0, reasons={"flaky": 1})}


def test_attempts_that_were_cut_off_are_no_parents(ledger: Ledger, make) -> None:
    task = make.task("p")
    whole, cut = (
        make.play(0, "attempt", i, subject_id=task.id, stop=stop) for i, stop in enumerate((Stop.DONE, Stop.TOKENS))
    )
    ledger.append(make.seed(), task, whole, cut)
    ledger.append(*(make.verdict(attempt, passed=False, reward=-1.0) for attempt in (whole, cut)))
    make.close(ledger, 0)
    assert ledger.failed_attempts(task.id, before=1) == (whole.id,)


def test_movement_counts_updates_that_changed_the_weights(ledger: Ledger, make) -> None:
    for step in range(3):
        update = make.update(step)
        make.close(ledger, step, update=replace(update, skipped="too few groups") if step == 1 else update)
    assert ledger.movement(since=0, before=9) == {0: 1.0, 1: 0.0, 2: 1.0}
    assert ledger.movement(since=1, before=2) == {1: 0.0}


def test_held_out_tasks_and_undecided_attempts_do_not_count(ledger: Ledger, make) -> None:
    dev, task = make.task("dev", split="held_out"), make.task("undecided")
    ledger.append(make.seed(), dev, task)
    for subject in (dev, task):
        attempt = make.play(0, "attempt", subject_id=subject.id)
        ledger.append(attempt)
        verdict: Verdict = make.verdict(attempt, passed=None)
        ledger.append(verdict)
    make.close(ledger, 0)
    (known,) = ledger.known_tasks(since=0, before=9)
    assert (known.id, known.plays) == (task.id, (Played(step=0, decided=0, solved=0),))


@pytest.mark.parametrize("choose", [uniform, frontier, ssr])
def test_a_ledger_serves_the_curricula(played: Ledger, choose) -> None:
    chosen = choose(played, played.seeds(), n=4, step=4, seed=0)
    assert {choice.mode for choice in chosen} <= {"propose", "replay", "mutate"}
    played.append(*(replace(choice, index=1 + i) for i, choice in enumerate(chosen))).result()
    assert [replace(choice, index=i) for i, choice in enumerate(played.choices(4)[1:])] == list(chosen)


def test_the_indexes_serve_the_questions(ledger: Ledger) -> None:
    for name in ("_RECENT", "_EARLIER", "_TASKS", "_HINTED", "_CHOSEN", "_MINTED", "_MUTATED", "_MOVED", "_FAILED"):
        sql = getattr(curricula, name).format("?")
        plan = [row[3] for row in ledger._rows(f"EXPLAIN QUERY PLAN {sql}", *[1] * sql.count("?"))]
        assert not [line for line in plan if line.startswith("SCAN")], (name, plan)
