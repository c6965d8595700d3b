"""Log-probabilities of samples by a model as it is, without gradients.

Not here: the forward pass (`forward`), what the numbers are compared with (`trainer`, the run's probe).

Shapes: T trained tokens of one sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selfplay.learner.batch import pack
from selfplay.learner.forward import score
from selfplay.learner.lora import speak_as
from selfplay.types import Sample


@torch.no_grad()
def logprobs_of(
    model: nn.Module, samples: Sequence[Sample], parts: Sequence[Sequence[int]], *, temperature: float
) -> dict[int, Tensor]:
    """For each member of `parts` (positions in `samples`): log-probabilities of its trained tokens, (T,).

    Natural log under the temperature, float32. One forward pass a part, which is of one role where roles have adapters
    of their own.

    Raises:
        UserError: a sample has no trained token behind a prompt, or the model is not one that `forward` knows.
    """
    found: dict[int, Tensor] = {}
    for part in parts:
        speak_as(model, samples[part[0]].role)
        row = pack(samples, part)
        scores = score(model, row, temperature=temperature, sinks={})
        found |= zip(row.members, scores.logprob_N.split_with_sizes(list(row.lengths)), strict=True)
    return found
