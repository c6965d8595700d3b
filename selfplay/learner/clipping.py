"""The gradient's norm and its clipping: the same numbers whether one process holds the gradient or several ranks do.

A row's sum of squares is in float32, rows are added up in float64: torch's `get_total_norm`, all in float32, is off by
3e-4 of itself for 28 million numbers on a processor. Ranks hold whole rows, so theirs add up to the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

EPS = 1e-6
"""As torch's `clip_grads_with_norm_`."""


def square_of(gradients: Iterable[Tensor]) -> float:
    """Sum of the squares of all their numbers; inf or nan where one is not finite."""
    squares = [_rows(gradient).double().square().sum() for gradient in gradients]
    # note: a card is asked once.
    return float(torch.stack(squares).sum()) if squares else 0.0


def clip(gradients: Iterable[Tensor], *, norm: float, most: float) -> None:
    """Scale them, whose global norm is `norm`, down to a norm of `most`, in place; smaller ones stay as they are."""
    if (factor := most / (norm + EPS)) < 1.0:
        torch._foreach_mul_(list(gradients), factor)


def _rows(gradient: Tensor) -> Tensor:
    """A norm a row, the first dimension being rows."""
    flat = gradient.flatten(1) if gradient.dim() > 1 else gradient.reshape(-1, 1)
    found: Tensor = torch.linalg.vector_norm(flat, dim=1)
    return found
