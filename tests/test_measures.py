"""Numbers of a step: counted, and unknown rather than zero where there is nothing."""

from __future__ import annotations

from dataclasses import replace

from selfplay.measures import counts_of, mean, shown
from selfplay.stages import Played
from selfplay.types import Fault, Stage, Stop, Trajectory, Turn, Update, Verdict


def played(name: str, stage: Stage, *, valid: bool = True, passed: bool | None = None, reward: float | None) -> Played:
    fault = None if reward is not None or stage == "propose" else Fault(culprit="sandbox", where="w", message="m")
    return Played(
        trajectory=Trajectory(
            id=name,
            step=0,
            stage=stage,
            role="r",
            subject_id="s",
            index=0,
            turns=(Turn(speaker="policy", token_ids=(1, 2), logprobs=(-1.0, -1.0)),),
            stop=Stop.DONE,
            policy_version=(0, 0),
        ),
        verdict=Verdict(
            trajectory_id=name,
            stage="mint" if stage == "propose" else "judge",
            valid=valid,
            passed=passed,
            reward=reward,
            reason="valid" if valid else "no_change",
            why="w",
            fault=fault,
        ),
    )


UPDATE = Update(
    step=0,
    phase="play",
    policy_version=3,
    trajectory_ids=(),
    advantages=(),
    partition=(),
    old_logprobs=(),
    lr=0.1,
    weights_digest="",
    reference_digest=None,
    fingerprint="",
    loss=0.5,
    grad_norm=2.0,
    tokens=4,
    seconds=1.0,
)

PLAYS = [
    played("a", "propose", reward=None),
    played("b", "propose", valid=False, reward=None),
    played("c", "attempt", passed=True, reward=1.0),
    played("d", "attempt", passed=False, reward=-1.0),
    played("e", "attempt", passed=None, reward=None),
]


def test_counts() -> None:
    counts = counts_of(PLAYS, ())
    assert (counts["proposals"], counts["valid"]) == (2, 1)
    assert (counts["attempts"], counts["decided"], counts["solved"], counts["faults"]) == (3, 2, 1, 1)
    assert counts["left_out"] == 0
    assert counts["tokens"] == 10
    suspicious = replace(PLAYS[4], verdict=replace(PLAYS[4].verdict, fault=None))
    counts = counts_of([suspicious, *PLAYS], ())
    assert (counts["attempts"], counts["decided"], counts["left_out"], counts["faults"]) == (4, 2, 1, 1)


def test_the_screen_sees_reasons_and_means_of_what_was_decided() -> None:
    grades = {"a": PLAYS[2].verdict, "b": PLAYS[3].verdict}
    data = shown(counts_of(PLAYS, ()), PLAYS, grades, update=UPDATE, seconds={"sampling": 2.0, "other": 1.0})
    assert data["refused"] == {"no_change": 1}
    assert data["solver_reward"] == 0.0
    assert data["proposer_reward"] == 0.0
    assert data["tokens_per_second"] == 5.0
    assert data["seconds"] == 3.0


def test_nothing_is_unknown_not_zero() -> None:
    data = shown(counts_of([], ()), [], {}, update=UPDATE, seconds={})
    assert data["solver_reward"] is None
    assert data["tokens_per_second"] is None
    assert mean([]) is None
