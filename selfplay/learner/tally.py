"""What an update saw, sample by sample, and the metrics that follow from it. Pure.

Not here: the loss itself (`grpo`), where the numbers come from (`trainer`).

Shapes: T trained tokens of one sample; N those of several, concatenated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from selfplay.learner.batch import advantages_of
from selfplay.types import Sample, record


@record
class Seen:
    """One sample in one pass: one number a trained token, float32, without gradient."""

    logprob_T: Tensor
    old_T: Tensor
    entropy_T: Tensor
    loss_T: Tensor
    """Before role weights and reduction."""


def trained_values(sample: Sample) -> tuple[float, ...]:
    """The sampler's log-probabilities of the trained tokens."""
    return tuple(lp for lp, trained in zip(sample.sampler_logprobs, sample.trained, strict=True) if trained)


def imitation_metrics(samples: Sequence[Sample], seen: Mapping[int, Seen]) -> dict[str, float]:
    """`loss`, `entropy` (nats) and `tokens`: means over trained tokens, overall and as `ROLE.loss` etc."""

    def measure(members: Sequence[int]) -> dict[str, float]:
        return _means([seen[member] for member in members])

    return _by_role(samples, list(seen), measure)


def play_metrics(
    samples: Sequence[Sample], seen: Mapping[int, Seen], *, clip_low: float, clip_high: float
) -> dict[str, float]:
    """Those of `imitation_metrics`, and how far apart current, old and sampling weights are.

    - `sampler_gap`: mean |log pi_old - log sampler|; `sampler_ratio_max`: greatest pi_old / sampler;
    - `sampler_kl`: k3 estimate of KL(sampler || pi_old);
    - `clip_fraction`: share of the tokens whose gradient the clip removes;
    - those of `left_out`.
    """

    def measure(members: Sequence[int]) -> dict[str, float]:
        chosen = [seen[member] for member in members]
        sampler_N = torch.tensor([lp for member in members for lp in trained_values(samples[member])])
        gap_N = torch.cat([one.old_T for one in chosen]) - sampler_N
        ratio_N = (torch.cat([one.logprob_T for one in chosen]) - torch.cat([one.old_T for one in chosen])).exp()
        sign_N = torch.tensor([advantage for m in members for advantage in advantages_of(samples[m])])
        lost_N = ((sign_N > 0) & (ratio_N > 1 + clip_high)) | ((sign_N < 0) & (ratio_N < 1 - clip_low))
        return _means(chosen) | {
            "sampler_gap": gap_N.abs().mean().item(),
            "sampler_ratio_max": gap_N.max().exp().item(),
            "sampler_kl": (gap_N.exp() - gap_N - 1.0).mean().item(),
            "clip_fraction": lost_N.float().mean().item(),
        }

    return _by_role(samples, list(seen), measure) | left_out(samples, seen)


def left_out(samples: Sequence[Sample], seen: Collection[int]) -> dict[str, float]:
    """Samples that were not learnt from, by why.

    - `untrained`: no token of theirs is trained;
    - `zero_variance`: their group teaches nothing.
    """
    untrained = sum(True not in sample.trained for sample in samples)
    return {"untrained": float(untrained), "zero_variance": float(len(samples) - len(seen) - untrained)}


def _means(seen: Sequence[Seen]) -> dict[str, float]:
    loss_N = torch.cat([one.loss_T for one in seen])
    entropy_N = torch.cat([one.entropy_T for one in seen])
    return {"loss": loss_N.mean().item(), "entropy": entropy_N.mean().item(), "tokens": float(loss_N.numel())}


def _by_role(
    samples: Sequence[Sample], members: Sequence[int], measure: Callable[[Sequence[int]], dict[str, float]]
) -> dict[str, float]:
    metrics = measure(members)
    for role in sorted({samples[member].role for member in members}):
        own = measure([member for member in members if samples[member].role == role])
        metrics |= {f"{role}.{name}": value for name, value in own.items()}
    return metrics
