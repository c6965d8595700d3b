"""The output head: log-probabilities of the trained tokens without float32 logits, and its gradient in float32.

Logits are made in the memory that then holds what the backward pass needs of them, the probabilities, in the model's
type; the float32 passes between go over a few rows at a time, in two buffers that stay in the processor's cache: fresh
memory costs more than the arithmetic. Probabilities are kept up to `KEPT_ELEMENTS`; beyond that they are made again,
section by section, so that neither the vocabulary nor the number of trained tokens decides the memory.

Not here: the model below (`forward`), losses (`grpo`).

Shapes: N trained tokens, C those of one piece, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

LOGIT_ELEMENTS = 1 << 22
"""Most logits of one product."""

PASS_ELEMENTS = 1 << 19
"""Logits that are float32 at once, so that the passes over them stay in the processor's cache."""

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
        num_rows, step = len(hidden_ND), _step(weight_VD)
        kept = num_rows * len(weight_VD) <= KEPT_ELEMENTS
        probability_NV = hidden_ND.new_empty(num_rows if kept else min(step, num_rows), len(weight_VD))
        logprob_N = torch.empty(num_rows, dtype=_wide(hidden_ND), device=hidden_ND.device)
        entropy_N = torch.empty_like(logprob_N)
        for start in range(0, num_rows, step):
            rows = slice(start, start + step)
            piece_CV = probability_NV[rows] if kept else probability_NV[: len(logprob_N[rows])]
            torch.mm(hidden_ND[rows], weight_VD.t(), out=piece_CV)
            _normalise(piece_CV, targets_N[rows], temperature, found=(logprob_N[rows], entropy_N[rows]))
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N)
        ctx.probability_NV, ctx.temperature, ctx.sink_VD = probability_NV if kept else None, temperature, sink_VD
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
        size, step = max(4, KEPT_ELEMENTS // len(weight_VD) // 4 * 4), _step(weight_VD)
        for start in range(0, len(hidden_ND), size):
            rows = slice(start, start + size)
            again_CV = hidden_ND.new_empty(len(hidden_ND[rows]), weight_VD.shape[0])
            for begin in range(0, len(again_CV), step):
                piece = slice(begin, begin + step)
                torch.mm(hidden_ND[rows][piece], weight_VD.t(), out=again_CV[piece])
                _normalise(again_CV[piece], targets_N[rows][piece], ctx.temperature)
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
    # note: `scatter_add_` goes over the whole vocabulary.
    logits_CV[torch.arange(len(targets_C), device=targets_C.device), targets_C] += scale_C1.squeeze(1)
    weight_gradient_VD = None
    if ctx.needs_input_grad[1]:
        weight_gradient_VD = logits_CV.t() @ hidden_CD
        if ctx.sink_VD is not None:
            add_in_place(ctx.sink_VD, weight_gradient_VD)
            weight_gradient_VD = None
    return logits_CV @ weight_VD, weight_gradient_VD


def _step(weight_VD: Tensor) -> int:
    """Rows of one product."""
    # note: below 4 rows a float32 product depends on how many rows there are.
    return max(4, LOGIT_ELEMENTS // len(weight_VD))


def _normalise(
    logits_CV: Tensor, targets_C: Tensor, temperature: float, *, found: tuple[Tensor, Tensor] | None = None
) -> None:
    """Turn logits into probabilities in place; the targets' log-probabilities and the entropies go into `found`."""
    rows = max(1, PASS_ELEMENTS // logits_CV.shape[1])
    wide_2CV = logits_CV.new_empty(2, min(rows, len(logits_CV)), logits_CV.shape[1], dtype=_wide(logits_CV))
    for start in range(0, len(logits_CV), rows):
        piece = slice(start, start + rows)
        own_CV = logits_CV[piece]
        wide_CV, probs_CV = wide_2CV[:, : len(own_CV)]
        wide_CV.copy_(own_CV)
        if temperature != 1.0:
            wide_CV.div_(temperature)
        torch.softmax(wide_CV, dim=-1, out=probs_CV)
        own_CV.copy_(probs_CV)
        if found is not None:
            top_C, least_C = wide_CV.amax(-1), probs_CV.amax(-1).log()
            # note: the largest probability is 1 / sum(exp(logit - top)), so its log is what normalises.
            chosen_C = wide_CV.gather(1, targets_C[piece].unsqueeze(1)).squeeze(1)
            found[0][piece] = chosen_C - top_C + least_C
            found[1][piece] = top_C - least_C - probs_CV.mul_(wide_CV).sum(-1)


def _wide(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


def add_in_place(sum_: Tensor, part: Tensor) -> None:
    """Add `part` to the float32 `sum_`, piece by piece: five times quicker than one mixed-type `add_` (113 MB)."""
    total, addend = sum_.view(-1), part.reshape(-1)
    wide = total.new_empty(min(total.numel(), ADD_ELEMENTS))
    for start in range(0, total.numel(), ADD_ELEMENTS):
        piece = total[start : start + ADD_ELEMENTS]
        piece.add_(wide[: len(piece)].copy_(addend[start : start + ADD_ELEMENTS]))
