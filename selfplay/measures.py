"""What a closed step amounts to, in numbers: for its row in the ledger and for the screen. Pure.

Not here: drawing (`views`), what the ledger counts from its own rows (`ledger.tally`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from selfplay.stages import Played
from selfplay.types import Group, Update, Verdict


def counts_of(plays: Sequence[Played], groups: Sequence[Group]) -> dict[str, float]:
    """Proposals, valid ones, tasks, attempts (decided, left out, solved), faults, truncations, groups, tokens."""
    proposals = [p for p in plays if p.trajectory.stage == "propose"]
    attempts = [p for p in plays if p.trajectory.stage == "attempt"]
    return {
        "proposals": len(proposals),
        "valid": sum(p.verdict.valid for p in proposals),
        "tasks": len({p.task.id for p in proposals if p.task}),
        "attempts": len(attempts),
        "decided": sum(p.verdict.passed is not None for p in attempts),
        "left_out": sum(p.verdict.passed is None and p.verdict.fault is None for p in attempts),
        "solved": sum(bool(p.verdict.passed) for p in attempts),
        "faults": sum(p.verdict.fault is not None for p in plays),
        "truncated": sum(p.trajectory.stop.truncated for p in plays),
        "groups": len(groups),
        "informative": sum(group.informative for group in groups),
        "tokens": sum(p.trajectory.num_sampled for p in plays),
    }


def shown(
    counts: Mapping[str, float],
    plays: Sequence[Played],
    grades: Mapping[str, Verdict],
    *,
    update: Update,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The data of a `step` event."""
    refused = Counter(p.verdict.reason for p in plays if p.trajectory.stage == "propose" and not p.verdict.valid)
    attempts = [p.verdict.reward for p in plays if p.trajectory.stage == "attempt" and p.verdict.reward is not None]
    paid = [grade.reward for grade in grades.values() if grade.reward is not None]
    sampling = seconds.get("sampling", 0.0)
    return {
        **update.metrics,
        **counts,
        "refused": dict(sorted(refused.items())),
        "proposer_reward": mean(paid),
        "solver_reward": mean(attempts),
        "loss": update.loss,
        "grad_norm": update.grad_norm,
        "version": update.policy_version,
        "tokens_per_second": counts["tokens"] / sampling if sampling else None,
        "seconds": sum(seconds.values()),
        "stage_seconds": dict(seconds),
        "skipped": update.skipped,
    }


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None
