"""What one pass over a batch works with, and the loss of played tokens.

That loss is the rule's, corrected for the sampler, plus the weighed divergence from a reference.

Not here: the formulas (`grpo`), token weights and what an option names (`options`), the forward (`forward`).

Shapes: B samples of a micro-batch, T trained tokens of the longest, N trained tokens of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selfplay.learner import grpo
from selfplay.learner.batch import Row
from selfplay.learner.options import Options
from selfplay.learner.tally import Seen, trained_values
from selfplay.types import Sample, record

ReferenceScore = Callable[[Row], Tensor]
"""Log-probabilities of a row's trained tokens under the reference, (N,), without gradient."""


Objective = Callable[[Row, grpo.Tokens], Tensor]
"""Token losses of one micro-batch, (B, T)."""

Learnt = tuple[float, float, dict[int, Seen], dict[str, float]]
"""Loss, gradient norm, what was seen a member, `ROLE.grad_norm`."""


@record
class Work:
    """What one pass over a batch needs."""

    samples: Sequence[Sample]
    parts: tuple[tuple[int, ...], ...]
    weights: Mapping[int, float]
    temperature: float
    objective: Objective
    old: Mapping[int, Tensor] | None
    """Log-probabilities before the step, a member each; None: those of this very pass."""


def in_order(work: Work, order: Sequence[Sequence[str]]) -> tuple[Work, ...]:
    """`work` cut into what is learnt one after the other: the micro-batches of each set of roles, none left empty.

    Each part keeps its token weights, and `old` are the log-probabilities before the first of them, so that the ratio
    and its clip see how far the ones before it moved the policy.
    """
    if not order:
        return (work,)
    roles = [work.samples[part[0]].role for part in work.parts]
    cut = [tuple(part for part, role in zip(work.parts, roles, strict=True) if role in one) for one in order]
    return tuple(replace(work, parts=parts) for parts in cut if parts)


def joined(passes: Sequence[Learnt]) -> Learnt:
    """What passes over parts of one batch found, together: the loss's sum, the root of the norms' squares' sum."""
    seen = {member: one for _, _, found, _ in passes for member, one in found.items()}
    norms = {name: value for *_, found in passes for name, value in found.items()}
    loss, norm = math.fsum(loss for loss, *_ in passes), passes[0][1]
    return loss, norm if len(passes) == 1 else math.hypot(*(norm for _, norm, *_ in passes)), seen, norms


@record
class Played:
    """What the loss of one batch is made of; call it with a micro-batch."""

    samples: Sequence[Sample]
    options: Options
    rule: grpo.Rule
    correction: grpo.Correction | None
    reference: ReferenceScore | None
    """None: no divergence is weighed."""

    def __call__(self, row: Row, tokens: grpo.Tokens) -> Tensor:
        """Token losses of one micro-batch, (B, T)."""
        options = self.options
        loss_BT = self.rule.token_loss(tokens, clip_low=options.clip_low, clip_high=options.clip_high)
        if self.correction is not None:
            values = [trained_values(self.samples[member]) for member in row.members]
            sampler = [torch.tensor(one, device=loss_BT.device) for one in values]
            sampler_BT = pad_sequence(sampler, batch_first=True)
            loss_BT = loss_BT * self.correction(tokens.old_BT, sampler_BT=sampler_BT, mask_BT=tokens.mask_BT)
        if self.reference is not None:
            reference = self.reference(row).split_with_sizes(list(row.lengths))
            divergence_BT = grpo.KLS[options.kl_estimator](
                tokens.logprobs_BT, pad_sequence(list(reference), batch_first=True)
            )
            loss_BT = loss_BT + options.kl_coef * divergence_BT
        return loss_BT
