"""Verdicts of the search game: what was decided, in one sentence, with what it rests on. Pure.

Not here: deciding (`filters`, `rag`, `normalise`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfplay.errors import SelfplayError
from selfplay.games import Minted, undecided
from selfplay.games.rewards import SolverReward
from selfplay.games.search.records import AskFailed
from selfplay.types import Fault, Task, Trajectory, Verdict, VerdictStage


def minted(origin: Trajectory, task: Task, *, why: str, evidence: Mapping[str, Any]) -> Minted:
    """A proposal that is a task."""
    return Minted(verdict=_mint(origin, "valid", why, evidence, task_id=task.id), task=task)


def refused(origin: Trajectory, reason: str, why: str, evidence: Mapping[str, Any] | None = None) -> Minted:
    """A proposal of which no task came."""
    return Minted(verdict=_mint(origin, reason, why, evidence or {}, task_id=None), task=None)


def _mint(origin: Trajectory, reason: str, why: str, evidence: Mapping[str, Any], *, task_id: str | None) -> Verdict:
    return Verdict(
        trajectory_id=origin.id,
        stage="mint",
        valid=task_id is not None,
        passed=None,
        reward=None,
        reason=reason,
        why=why,
        task_id=task_id,
        evidence=evidence,
    )


def failed(trajectory: Trajectory, stage: VerdictStage, error: SelfplayError) -> Verdict:
    """No decision: who was asked or the retriever failed, not the player."""
    where, who = ("asks", "who was asked") if isinstance(error, AskFailed) else ("retrieval", "the retriever")
    fault = Fault(culprit="machine", where=where, message=error.message, detail=error.hint)
    return undecided(trajectory, fault, stage=stage, why=f"{who} failed: {error.message}")


def judged(
    attempt: Trajectory,
    passed: bool,
    reason: str,
    why: str,
    *,
    worth: SolverReward,
    evidence: Mapping[str, Any] | None = None,
    parts: Mapping[str, float] | None = None,
) -> Verdict:
    """An attempt that was decided; one without an answer that can be read is outside the rules."""
    return Verdict(
        trajectory_id=attempt.id,
        stage="judge",
        valid=parts is not None,
        passed=passed,
        reward=worth(passed),
        reason=reason,
        why=why,
        parts=parts or {},
        evidence=evidence or {},
    )
