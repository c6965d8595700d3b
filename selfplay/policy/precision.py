"""How sampler and learner compute in bfloat16: products in bfloat16, everything that is added up along the layers wide.

A model whose parameters are bfloat16 would keep the sum that runs through its layers (the residual stream) in bfloat16
too, and round it sixty times. Under `wide_sums`, with input embeddings made float32, that sum, the norms and the rotary
embedding stay float32, and only what enters a product is rounded: as under the mixed precision of other trainers, whose
parameters are float32. Sampler and learner do the same, or their log-probabilities would be further apart than either
is from float32.

Not here: float32 models, for which this does nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def wide_sums(model: Any) -> AbstractContextManager[Any]:
    """Inside, products of float32 with the parameters of `model` are made in the parameters' type."""
    head: torch.Tensor = model.get_output_embeddings().weight
    low = head.dtype
    return torch.autocast(head.device.type, dtype=low, enabled=low in (torch.bfloat16, torch.float16))


def embedded(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The input embeddings of `ids`, of a further last dimension, in float32 at least."""
    found: torch.Tensor = model.get_input_embeddings()(ids)
    return widened(found)


def widened(values: torch.Tensor) -> torch.Tensor:
    """As they are, or in float32 where their type is narrower."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
