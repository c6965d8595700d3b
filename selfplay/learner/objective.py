"""What one pass over a batch works with, and the loss of played tokens.

That loss is the rule's, corrected for the sampler, plus the weighed divergence from a reference.

Not here: the formulas (`grpo`), token weights and what an option names (`options`), the forward (`forward`).

Shapes: B samples of a micro-batch, T trained tokens of the longest, N trained tokens of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
            sampler = [torch.tensor(trained_values(self.samples[member])) for member in row.members]
            sampler_BT = pad_sequence(sampler, batch_first=True).to(loss_BT.device)
            loss_BT = loss_BT * self.correction(tokens.old_BT, sampler_BT=sampler_BT, mask_BT=tokens.mask_BT)
        if self.reference is not None:
            reference = self.reference(row).split_with_sizes(list(row.lengths))
            divergence_BT = grpo.KLS[options.kl_estimator](
                tokens.logprobs_BT, pad_sequence(list(reference), batch_first=True)
            )
            loss_BT = loss_BT + options.kl_coef * divergence_BT
        return loss_BT
