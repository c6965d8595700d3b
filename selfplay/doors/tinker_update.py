"""The arithmetic of an update whose weights are elsewhere: from log-probabilities to the loss and its gradient by them.

A pass at the server goes down that gradient: the sum of weight x log-probability, with the gradient as weights, has the
same gradient by the parameters as the loss (the chain rule), to the last bits.

Shapes: B samples, T trained tokens of the longest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selfplay.errors import RunFailed
from selfplay.learner import grpo
from selfplay.learner.batch import advantages_of, pack
from selfplay.learner.objective import Played
from selfplay.learner.options import Options, correction_of, rule_of, token_weights
from selfplay.learner.tally import Seen
from selfplay.types import Sample


def objective(
    samples: Sequence[Sample],
    members: Sequence[int],
    *,
    now: Sequence[Sequence[float]],
    old: Sequence[Sequence[float]],
    options: Options,
) -> tuple[float, dict[int, Seen], list[list[float]]]:
    """The loss of `members`, what was seen of each, and the loss's gradient by their log-probabilities `now`.

    Args:
        samples: Of the whole batch.
        members: Positions of those that are learnt from.
        now: Log-probabilities of the trained tokens of each member, by the weights as they are.
        old: Those before the step.
        options: How the learner learns; no divergence from a reference is weighed.

    Raises:
        RunFailed: the loss or the gradient is not finite.
    """
    row = pack(samples, members)
    place = {member: at for at, member in enumerate(members)}
    leaves = [torch.tensor(now[place[member]], requires_grad=True) for member in row.members]
    before = [torch.tensor(old[place[member]]) for member in row.members]
    advantages = [torch.tensor(advantages_of(samples[member])) for member in row.members]
    tokens = grpo.Tokens(
        logprobs_BT=pad_sequence(leaves, batch_first=True),
        old_BT=pad_sequence(before, batch_first=True),
        mask_BT=torch.arange(max(row.lengths))[None, :] < torch.tensor(row.lengths)[:, None],
        advantage_B=pad_sequence(advantages, batch_first=True),
    )
    rule, correction = rule_of(options), correction_of(options)
    loss_BT = Played(samples=samples, options=options, rule=rule, correction=correction, reference=None)(row, tokens)
    weight = token_weights(samples, members, options=options)
    weight_B = torch.tensor([weight[member] for member in row.members])
    loss = grpo.total(loss_BT, mask_BT=tokens.mask_BT, weight_B=weight_B)
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = {member: cast(Tensor, leaf.grad) for member, leaf in zip(row.members, leaves, strict=True)}
    if not all(one.isfinite().all() for one in (loss, *gradient.values())):
        raise RunFailed(f"the loss ({loss.item()}) or its gradient is not finite; the weights are unchanged")
    seen = {
        member: seen_of(leaf.detach(), old_T=was, loss_T=lost[: len(leaf)].detach())
        for member, leaf, was, lost in zip(row.members, leaves, before, loss_BT, strict=True)
    }
    return loss.item(), seen, [gradient[member].tolist() for member in members]


def trained(samples: Sequence[Sample], each: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of the numbers of every token but the first, those of the trained tokens."""
    pairs = zip(samples, each, strict=True)
    return [[v for v, counts in zip(one, sample.trained[1:], strict=True) if counts] for sample, one in pairs]


def spread(sample: Sample, gradient: Sequence[float]) -> list[float]:
    """Weights of every token but the first: the API minimises -sum of weight x log-probability."""
    values = iter(gradient)
    return [-next(values) if counts else 0.0 for counts in sample.trained[1:]]


def seen_of(logprob_T: Tensor, *, loss_T: Tensor, old_T: Tensor | None = None) -> Seen:
    return Seen(logprob_T=logprob_T, old_T=logprob_T if old_T is None else old_T, entropy_T=-logprob_T, loss_T=loss_T)


def finite(each: list[list[float]]) -> list[list[float]]:
    if not all(math.isfinite(value) for one in each for value in one):
        raise RunFailed("a log-probability that the Tinker server gave is not finite")
    return each


def mean_gap(now: Sequence[Sequence[float]], old: Sequence[Sequence[float]]) -> float:
    gaps = [abs(a - b) for one, other in zip(now, old, strict=True) for a, b in zip(one, other, strict=True)]
    return math.fsum(gaps) / max(1, len(gaps))
