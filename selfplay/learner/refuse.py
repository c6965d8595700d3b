"""What no update may begin with: numbers that are not finite, records that do not fit together.

A NaN that gets into a loss shows as one number without a name; here the sample is still known.

Not here: what shows only in the forward (`trainer`: loss and gradient), groups that teach nothing (`batch`).
"""

from __future__ import annotations

import math

from selfplay.errors import RunFailed
from selfplay.types import Batch, Sample


def refuse(batch: Batch) -> None:
    """Check that every sample of `batch` can be learnt from.

    Raises:
        RunFailed: an advantage or a sampler's log-probability is not finite, or a sample's lists differ in length;
            the message names the trajectory.
    """
    for sample in batch.samples:
        if problem := _problem(sample):
            name = f"trajectory {sample.trajectory_id} (step {batch.step}, {sample.role})"
            raise RunFailed(f"{name} cannot be learnt from: {problem}", hint="look at it: selfplay inspect RUN ID")


def _problem(sample: Sample) -> str | None:
    """Why `sample` cannot be learnt from; None where it can."""
    if not math.isfinite(sample.advantage):
        return f"its advantage is {sample.advantage}"
    if sample.token_advantages and len(sample.token_advantages) != sum(sample.trained):
        return f"it has {len(sample.token_advantages)} advantages for {sum(sample.trained)} trained tokens"
    if not all(map(math.isfinite, sample.token_advantages)):
        return "the advantage of one of its tokens is not finite"
    lengths = {len(sample.token_ids), len(sample.trained), len(sample.sampler_logprobs)}
    if len(lengths) > 1:
        return f"it has {len(sample.token_ids)} tokens, {len(sample.trained)} marks and " + (
            f"{len(sample.sampler_logprobs)} log-probabilities"
        )
    strange = (at for at, logprob in enumerate(sample.sampler_logprobs) if not math.isfinite(logprob))
    at = next(strange, None)
    return None if at is None else f"the sampler's log-probability of its token {at} is {sample.sampler_logprobs[at]}"
