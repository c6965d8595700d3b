"""What a proposal is worth, as a verdict: what every game says of it in the same way. Pure.

Not here: the rewards (`rewards`), what stands beside a proposal (`likeness`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from selfplay.games.rewards import Beside, ProposerReward
from selfplay.types import Trajectory, Verdict


def graded(
    proposal: Trajectory,
    minted: Verdict,
    judged: Sequence[Verdict],
    *,
    worth: ProposerReward,
    beside: Beside,
    unreadable: Collection[str],
    unpaid: Collection[str] = (),
    did: str = "passed",
) -> Verdict:
    """The proposer's reward from its task's solve rate; None where the mint or too many attempts are undecided.

    Args:
        proposal: Who is graded.
        minted: What its mint decided; nobody is paid where that was a fault.
        judged: Verdicts of its task's first solver group.
        worth: The reward.
        beside: What else it looks at.
        unreadable: Reasons of the mint for a reply without the form that was asked for.
        unpaid: Reasons of the mint for which nobody is paid and nobody pays.
        did: What an attempt that passed did, in a word or two.
    """
    known = [verdict.passed for verdict in judged if verdict.passed is not None]
    passed = sum(known)
    beside = replace(beside, formed=minted.reason not in unreadable)
    nobody = minted.fault is not None or minted.reason in unpaid
    reward = None if nobody else worth(minted.valid, passed, len(known), beside)
    reason, why = minted.reason, minted.why
    if minted.valid:
        reason = "undecided" if reward is None else "graded"
        why = f"{passed} of {len(known)} attempts {did}{beside.words}"
    return Verdict(
        trajectory_id=proposal.id,
        stage="grade",
        valid=minted.valid,
        passed=None,
        reward=reward,
        reason=reason,
        why=why,
        task_id=minted.task_id,
        parts={"solve_rate": passed / len(known), **beside.parts} if known and minted.valid else {},
        fault=minted.fault,
    )
