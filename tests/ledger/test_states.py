"""The state of every trajectory, as the view derives it from rows."""

from __future__ import annotations

import pytest

from selfplay.ledger import Ledger

SETTINGS = {
    "play.proposals": 2,
    "play.attempts": 2,
    "roles.proposer": "proposer",
    "roles.solver": "solver",
    "roles.train": ["solver"],
}


@pytest.fixture
def ledger(folder, create):
    with create(folder, SETTINGS) as made:
        yield made


def states(ledger: Ledger) -> list[tuple[str, str, int]]:
    ledger.flush()
    return sorted(
        (row["stage"], row["state"], row["num"])
        for row in ledger._rows("SELECT stage, state, count(*) AS num FROM trajectory_states GROUP BY stage, state")
    )


def test_a_trajectory_goes_from_owed_to_trained(ledger, make):
    ledger.append(make.seed())
    assert states(ledger) == []
    ledger.append(make.choice())
    assert states(ledger) == [("propose", "owed", 2)]
    proposals = [make.play(index=i) for i in range(2)]
    ledger.append(proposals[0])
    assert states(ledger) == [("propose", "owed", 1), ("propose", "sampled", 1)]
    (owed,) = ledger._rows("SELECT * FROM trajectory_states WHERE state = 'owed'")
    assert tuple(owed) == ("owed", None, 0, "propose", "proposer", "s0", 1)
    task = make.task(parent_id=proposals[0].id)
    ledger.append(task, make.verdict(proposals[0], "mint", task_id=task.id))
    ledger.append(proposals[1], make.verdict(proposals[1], "mint", valid=False, reason="no"))
    assert states(ledger) == [("attempt", "owed", 2), ("propose", "judged", 2)]
    attempts = [make.play(0, "attempt", i, subject_id=task.id) for i in range(2)]
    for i, attempt in enumerate(attempts):
        ledger.append(attempt, make.verdict(attempt, passed=i == 0, reward=1.0 - i))
    ledger.append(make.verdict(proposals[0], "grade", reward=0.5))
    assert states(ledger) == [("attempt", "judged", 2), ("propose", "graded", 1), ("propose", "judged", 1)]
    make.close(ledger, 0, [make.group(attempts, (1.0, 0.0))])
    assert states(ledger) == [("attempt", "trained", 2), ("propose", "graded", 1), ("propose", "judged", 1)]


def test_attempts_on_children_and_on_replayed_tasks_are_owed(ledger, make):
    parent = make.task("p")
    attempt = make.play(0, "attempt", subject_id=parent.id)
    ledger.append(make.seed(), parent, attempt, make.verdict(attempt, passed=False, reward=-1.0))
    make.close(ledger, 0)
    ledger.append(make.choice(1, mode="replay", subject_id=parent.id))
    assert states(ledger) == [("attempt", "judged", 1), ("attempt", "owed", 2)]
    child = make.task("c", parent_id=attempt.id, step=1)
    ledger.append(make.choice(1, 1, mode="mutate", subject_id=parent.id, terms={"attempt": attempt.id}))
    ledger.append(child, make.verdict(attempt, "mint", task_id=child.id))
    assert states(ledger) == [("attempt", "judged", 1), ("attempt", "owed", 4)]


def test_what_teaches_nothing_is_graded_only(ledger, make):
    ledger.append(make.seed(), make.choice())
    proposals = [make.play(index=i) for i in range(2)]
    for i, proposal in enumerate(proposals):
        ledger.append(proposal, make.verdict(proposal, "mint"), make.verdict(proposal, "grade", reward=float(i)))
    make.close(ledger, 0, [make.group(proposals, (0.0, 1.0))])
    # note: only solvers learn in this configuration.
    assert states(ledger) == [("propose", "graded", 2)]
