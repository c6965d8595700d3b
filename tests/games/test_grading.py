"""A proposal's worth: paid from decided attempts, and nothing where the machine failed or nobody is to be paid."""

from __future__ import annotations

import pytest

from selfplay.games.grading import graded
from selfplay.games.rewards import ALONE, SelfPlaySwe
from selfplay.types import Fault, Stop, Trajectory, Verdict

PROPOSAL = Trajectory(
    id="p",
    step=0,
    stage="propose",
    role="proposer",
    subject_id="s",
    index=0,
    attempt=0,
    turns=(),
    stop=Stop.DONE,
    policy_version=(0, 0),
)


def mint(reason: str = "valid", *, fault: Fault | None = None) -> Verdict:
    valid = reason == "valid" and fault is None
    task = "t" if valid else None
    return Verdict(
        trajectory_id="p",
        stage="mint",
        valid=valid,
        passed=None,
        reward=None,
        reason=reason,
        why="because",
        task_id=task,
        fault=fault,
    )


def attempts(*passed: bool | None) -> list[Verdict]:
    return [
        Verdict(trajectory_id=f"a{i}", stage="judge", valid=True, passed=one, reward=None, reason="", why="")
        for i, one in enumerate(passed)
    ]


def grade(minted: Verdict, *judged: bool | None) -> Verdict:
    return graded(
        PROPOSAL,
        minted,
        attempts(*judged),
        worth=SelfPlaySwe(min_viable=2),
        beside=ALONE,
        unreadable=("truncated",),
        unpaid=("control",),
        did="answered it",
    )


def test_it_is_paid_by_the_decided_attempts() -> None:
    found = grade(mint(), True, False, None, False, False)
    assert (found.reason, found.why) == ("graded", "1 of 4 attempts answered it")
    assert found.reward == pytest.approx(1.0 - 1.8 * 0.25)
    assert (found.parts["solve_rate"], found.task_id, found.stage) == (0.25, "t", "grade")


def test_too_few_decided_attempts_leave_it_undecided() -> None:
    found = grade(mint(), True, None)
    assert (found.valid, found.reward, found.reason) == (True, None, "undecided")


@pytest.mark.parametrize("reason", ["too_easy", "truncated"])
def test_what_is_no_task_keeps_its_reason(reason: str) -> None:
    found = grade(mint(reason))
    assert (found.valid, found.reward, found.reason, found.why, found.parts) == (False, -1.0, reason, "because", {})


def test_nobody_is_paid_for_a_control_or_a_fault() -> None:
    assert grade(mint("control")).reward is None
    fault = Fault(culprit="machine", where="sandbox", message="gone")
    found = grade(mint("fault", fault=fault))
    assert (found.reward, found.fault) == (None, fault)
