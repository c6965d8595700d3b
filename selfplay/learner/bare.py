"""The record of an update that did nothing: what every update has, whichever learner makes it.

Not here: what an update that did something says of it (`tally`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from selfplay.learner.tally import left_out
from selfplay.types import Batch, Phase, Sample, Update


class Known(Protocol):
    """What an update says of the learner that made it; see `learner.Learner`."""

    @property
    def policy_version(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def weights_digest(self) -> str: ...


def bare(samples: Sequence[Sample], *, step: int, phase: Phase, of: Known) -> Update:
    """An update of `samples` by the learner `of` that moved no weight, with neither tokens nor a loss."""
    return Update(
        step=step,
        phase=phase,
        policy_version=of.policy_version,
        trajectory_ids=tuple(sample.trajectory_id for sample in samples),
        advantages=tuple(sample.advantage for sample in samples),
        partition=(),
        old_logprobs=(),
        lr=0.0,
        weights_digest=of.weights_digest(),
        reference_digest=None,
        fingerprint=of.fingerprint,
        loss=0.0,
        grad_norm=0.0,
        tokens=0,
        seconds=0.0,
    )


def skipped(batch: Batch, *, why: str, of: Known) -> Update:
    """The same of a batch from which nothing was learnt, with the reason."""
    nothing = bare(batch.samples, step=batch.step, phase=batch.phase, of=of)
    return replace(nothing, skipped=why, metrics=left_out(batch.samples, ()))
