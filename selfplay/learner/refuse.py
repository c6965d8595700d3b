"""What no update may begin with: numbers that are not finite, records that do not fit together; what ranks cannot do.

A NaN that gets into a loss shows as one number without a name; here the sample is still known. What ranks cannot do is
said without torch, so that a plan says it too, and in the learner's words.

Not here: what shows only in the forward (`trainer`: loss and gradient), groups that teach nothing (`batch`).
"""

from __future__ import annotations

import math

from selfplay.errors import RunFailed, UserError
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


def refuse_ranks(*, optimizer: str, in_turns: bool = False) -> None:
    """Check that a learner of several ranks can learn so.

    Args:
        optimizer: A `learner.optimizer.Kind`.
        in_turns: Are several updates made of one step?

    Raises:
        UserError: it cannot.
    """
    if in_turns:
        raise UserError("ranks make one update a step, of all roles", hint="-s learner.order=joint, or one process")
    if optimizer != "adamw":
        raise UserError(
            f"the optimizer `{optimizer}` keeps blocks of numbers together, which ranks would cut",
            hint="-s learner.optimizer=adamw, or -s learner.ranks=1",
        )


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
