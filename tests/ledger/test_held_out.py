"""What is held out is looked at and never learnt from; a run that did so is found out."""

from __future__ import annotations

import pytest

from selfplay.ledger import Ledger, check, held_out


@pytest.fixture
def run(ledger: Ledger, make) -> Ledger:
    """A step of play, an evaluation of a held-out seed and its task, and a dev task of a train seed."""
    make.step(ledger, 0)
    ledger.append(make.seed("h0", split="held_out"))
    task, dev = make.task("kept", seed_id="h0", split="held_out", step=-1), make.task("dev", split="held_out", step=-1)
    ledger.append(task, dev)
    for subject in ("h0", task.id, dev.id):
        role = "proposer" if subject == "h0" else "solver"
        play = make.play(1, "evaluate", subject_id=subject, role=role)
        ledger.append(play)
        ledger.append(make.verdict(play, "mint" if subject == "h0" else "judge", passed=subject != "h0" or None))
    ledger.flush()
    return ledger


def strays(ledger: Ledger) -> list[str]:
    """What is wrong with the choices and with what was played of them."""
    ledger.flush()
    (found,) = [one for one in check.checks(ledger.folder) if one.name == "choices"]
    return list(found.problems)


def test_evaluations_are_told_from_the_dev_set(run: Ledger, make) -> None:
    assert strays(run) == []
    assert run.ask(held_out.tasks) == (make.task("kept", seed_id="h0", split="held_out", step=-1),)
    plays = run.ask(lambda ask: held_out.plays(ask, 1))
    assert [(play.side, play.subject_id) for play in plays] == [("proposer", "h0"), ("solver", make.task("kept").id)]


@pytest.mark.parametrize("name", ["kept", "dev"])
@pytest.mark.parametrize("terms", [{}, {"hint": True}])
def test_a_replay_of_a_held_out_task_is_noticed(run: Ledger, make, name: str, terms: dict[str, object]) -> None:
    task = make.task(name)
    run.append(make.choice(1, mode="replay", subject_id=task.id, terms=terms))
    assert strays(run) == [f"step 1: a choice to replay the held-out task {task.id}"]
    attempt = make.play(1, "attempt", subject_id=task.id)
    run.append(attempt)
    assert f"attempt {attempt.id} of step 1 was played to learn from, on the held-out task {task.id}" in strays(run)


def test_a_proposal_on_a_held_out_seed_is_noticed(run: Ledger, make) -> None:
    proposal = make.play(1, subject_id="h0")
    run.append(proposal)
    assert strays(run) == [f"proposal {proposal.id} of step 1 was played to learn from, on the held-out seed h0"]


def test_an_attempt_for_a_reward_is_no_evaluation(run: Ledger, make) -> None:
    """What a hint is worth is measured on tasks of play, in the same stage."""
    play = make.play(1, "evaluate", subject_id=make.task("word 0").id)
    run.append(play)
    assert len(run.ask(lambda ask: held_out.plays(ask, 1))) == 2
    assert strays(run) == []
    assert [len(task.plays) for task in run.known_tasks(since=0, before=9)] == [1]


@pytest.mark.parametrize("sql", held_out.STRAYS)
def test_no_question_reads_all_trajectories(run: Ledger, sql: str) -> None:
    plan = run.ask(lambda ask: ask(f"EXPLAIN QUERY PLAN {sql}"))
    assert not [row["detail"] for row in plan if row["detail"].startswith("SCAN t")]
