"""The output head: log-probabilities of the trained tokens without float32 logits, and its gradient in float32.

Logits are made a few rows at a time. What the backward pass needs of them, the probabilities, is kept in the model's
type up to `KEPT_ELEMENTS`; beyond that it is made again, section by section, so that neither the vocabulary nor the
number of trained tokens decides the memory.

Not here: the model below (`forward`), losses (`grpo`).

Shapes: N trained tokens, C those of one piece, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOGIT_ELEMENTS = 1 << 22
"""Logits in flight, so that the passes over them stay in the processor's cache."""

KEPT_ELEMENTS = 1 << 27
"""Most probabilities that are kept for the backward pass, or made again at once: 256 MiB in bfloat16."""

ADD_ELEMENTS = 1 << 20
"""Elements that `add_in_place` adds at once."""

Sinks = Mapping[nn.Parameter, Tensor]
"""Float32 gradient of each parameter, of the parameter's shape."""


class Head(torch.autograd.Function):
    """Output head, log-softmax and pick in one: (hidden_ND, ...) -> logprob_N, entropy_N.

    d logprob / d logits = (one-hot - p) / temperature, so p is all that the backward pass needs.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, temperature: float, sink_VD: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The gradient of `weight_VD` is added to `sink_VD` where there is one."""
        num_rows, vocabulary = hidden_ND.shape[0], weight_VD.shape[0]
        kept = num_rows * vocabulary <= KEPT_ELEMENTS
        probability_NV = hidden_ND.new_empty(num_rows, vocabulary) if kept else None
        logprob_N = torch.empty(num_rows, dtype=_wide(hidden_ND), device=hidden_ND.device)
        entropy_N = torch.empty_like(logprob_N)
        for rows, logprobs_CV in _pieces(hidden_ND, weight_VD, temperature=temperature):
            logprob_N[rows] = logprobs_CV.gather(1, targets_N[rows].unsqueeze(1)).squeeze(1)
            probs_CV = logprobs_CV.exp()
            if probability_NV is not None:
                probability_NV[rows] = probs_CV
            entropy_N[rows] = -torch.linalg.vecdot(probs_CV, logprobs_CV)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N)
        ctx.probability_NV, ctx.temperature, ctx.sink_VD = probability_NV, temperature, sink_VD
        ctx.mark_non_differentiable(entropy_N)
        return logprob_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        """Of `hidden_ND` and, without a sink, of `weight_VD`."""
        hidden_ND, weight_VD, targets_N = ctx.saved_tensors
        scale_N1 = (gradients[0] / ctx.temperature).to(hidden_ND.dtype).unsqueeze(1)
        if ctx.probability_NV is not None:
            probability_NV, ctx.probability_NV = ctx.probability_NV, None
            hidden_gradient_ND, weight_gradient_VD = _section(ctx, probability_NV, hidden_ND, targets_N, scale_N1)
            return hidden_gradient_ND, weight_gradient_VD, None, None, None
        hidden_gradient_ND = torch.empty_like(hidden_ND)
        weight_gradient_VD = None
        size = max(4, KEPT_ELEMENTS // weight_VD.shape[0] // 4 * 4)
        for start in range(0, len(hidden_ND), size):
            rows = slice(start, start + size)
            again_CV = hidden_ND.new_empty(len(hidden_ND[rows]), weight_VD.shape[0])
            for piece, logprobs_CV in _pieces(hidden_ND[rows], weight_VD, temperature=ctx.temperature):
                again_CV[piece] = logprobs_CV.exp()
            found = _section(ctx, again_CV, hidden_ND[rows], targets_N[rows], scale_N1[rows])
            hidden_gradient_ND[rows], part_VD = found
            if part_VD is not None:
                weight_gradient_VD = part_VD if weight_gradient_VD is None else weight_gradient_VD.add_(part_VD)
        return hidden_gradient_ND, weight_gradient_VD, None, None, None


def _section(
    ctx: Any, probability_CV: Tensor, hidden_CD: Tensor, targets_C: Tensor, scale_C1: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Gradients of some rows; `probability_CV` becomes that of their logits."""
    weight_VD = ctx.saved_tensors[1]
    logits_CV = probability_CV.mul_(-scale_C1)
    logits_CV.scatter_add_(1, targets_C.unsqueeze(1), scale_C1)
    weight_gradient_VD = None
    if ctx.needs_input_grad[1]:
        weight_gradient_VD = logits_CV.t() @ hidden_CD
        if ctx.sink_VD is not None:
            add_in_place(ctx.sink_VD, weight_gradient_VD)
            weight_gradient_VD = None
    return logits_CV @ weight_VD, weight_gradient_VD


def _pieces(hidden_ND: Tensor, weight_VD: Tensor, *, temperature: float) -> Iterator[tuple[slice, Tensor]]:
    """Log-probabilities of the whole vocabulary, some rows at a time."""
    wide = _wide(hidden_ND)
    # note: below 4 rows a float32 product depends on how many rows there are.
    step = max(4, LOGIT_ELEMENTS // weight_VD.shape[0])
    for start in range(0, len(hidden_ND), step):
        rows = slice(start, start + step)
        logits_CV = F.linear(hidden_ND[rows], weight_VD)
        if temperature != 1.0:
            logits_CV = logits_CV.to(wide) / temperature
        yield rows, torch.log_softmax(logits_CV, dim=-1, dtype=wide)


def _wide(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


def add_in_place(sum_: Tensor, part: Tensor) -> None:
    """Add `part` to the float32 `sum_`, piece by piece: five times quicker than one mixed-type `add_` (113 MB)."""
    total, addend = sum_.view(-1), part.reshape(-1)
    for start in range(0, total.numel(), ADD_ELEMENTS):
        piece = slice(start, start + ADD_ELEMENTS)
        total[piece].add_(addend[piece].float())
