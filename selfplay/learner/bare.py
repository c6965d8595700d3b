"""The record of an update that did nothing: what every update has, whoever makes it.

Not here: what an update that did something says of it (`tally`).
"""

from __future__ import annotations

from collections.abc import Sequence

from selfplay.types import Phase, Sample, Update


def bare(
    samples: Sequence[Sample], *, step: int, phase: Phase, policy_version: int, weights_digest: str, fingerprint: str
) -> Update:
    """An update of `samples` that moved no weight, with neither tokens nor a loss."""
    return Update(
        step=step,
        phase=phase,
        policy_version=policy_version,
        trajectory_ids=tuple(sample.trajectory_id for sample in samples),
        advantages=tuple(sample.advantage for sample in samples),
        partition=(),
        old_logprobs=(),
        lr=0.0,
        weights_digest=weights_digest,
        reference_digest=None,
        fingerprint=fingerprint,
        loss=0.0,
        grad_norm=0.0,
        tokens=0,
        seconds=0.0,
    )
