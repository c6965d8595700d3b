"""Group-relative policy optimisation as formulas: token losses, reductions, corrections, KL.

Every function states its source. Losses take log-probabilities of trained tokens, padded to a rectangle:
a *token loss* gives one number a token, a *reduction* the weight of each sequence's tokens, and
`total` sums their product. A reduction depends on the sequences' lengths only, so a batch may be cut
into micro-batches, or spread over processes, without changing loss or gradient.

Advantages are in `estimators`, and can be had from here too. Not here: which samples form a group, role
weights, files, models.

Shapes: B sequences, T trained tokens of the longest (shorter ones are padded at the end).

Example:
    >>> grpo([1.0, 0.0])
    (0.7071057811865378, -0.7071057811865378)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from selfplay.errors import UserError
from selfplay.learner.estimators import ESTIMATORS as ESTIMATORS
from selfplay.learner.estimators import Advantages as Advantages
from selfplay.learner.estimators import batch_std as batch_std
from selfplay.learner.estimators import dr_grpo as dr_grpo
from selfplay.learner.estimators import grpo as grpo
from selfplay.learner.estimators import has_variance as has_variance
from selfplay.learner.estimators import raw as raw
from selfplay.learner.estimators import rloo as rloo
from selfplay.types import record

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +- this before exp (verl `core_algos.py`, OpenRLHF)."""


@record
class Tokens:
    """The trained tokens of some sequences."""

    logprobs_BT: Tensor
    """Under the current weights; gradients flow through these only."""
    old_BT: Tensor
    """Under the learner's weights before the step."""
    mask_BT: Tensor
    """True where there is a token."""
    advantage_B: Tensor
    """One a sequence; or, with turn credit, one a token, (B, T)."""

    @property
    def advantage_B1(self) -> Tensor:
        """To be multiplied with what has a number a token: (B, 1), or (B, T) with turn credit."""
        return self.advantage_B.unsqueeze(-1) if self.advantage_B.ndim == 1 else self.advantage_B

    @property
    def log_ratio_BT(self) -> Tensor:
        """log(pi / pi_old), clamped to +-20; 0 at padding."""
        gap_BT = (self.logprobs_BT - self.old_BT).masked_fill(~self.mask_BT, 0.0)
        return gap_BT.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


TokenLoss = Callable[..., Tensor]
"""`(tokens: Tokens, *, clip_low: float, clip_high: float) -> loss_BT`."""


def _surrogate(log_ratio_BT: Tensor, advantage_B1: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    ratio_BT = log_ratio_BT.exp()
    return torch.maximum(-advantage_B1 * ratio_BT, -advantage_B1 * ratio_BT.clamp(1 - clip_low, 1 + clip_high))


def clipped(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.28) -> Tensor:
    """max(-A r, -A clip(r, 1 - low, 1 + high)) a token, r = pi / pi_old.

    Source: PPO (arXiv 1707.06347, eq. 7); 0.2/0.28 is DAPO's clip-higher (arXiv 2503.14476, eq. 10).
    """
    return _surrogate(tokens.log_ratio_BT, tokens.advantage_B1, clip_low=clip_low, clip_high=clip_high)


def dual_clipped(tokens: Tokens, *, clip_low: float = 0.2, clip_high: float = 0.2, cap: float = 3.0) -> Tensor:
    """`clipped`, and at most -A cap where A < 0. Source: Dual-clip PPO (arXiv 1912.09729); verl's default."""
    loss_BT = clipped(tokens, clip_low=clip_low, clip_high=clip_high)
    advantage_B1 = tokens.advantage_B1
    return torch.where(advantage_B1 < 0, torch.minimum(loss_BT, -advantage_B1 * cap), loss_BT)


def gspo(tokens: Tokens, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """`clipped` with the sequence's ratio exp(mean log-ratio), straight through to each token.

    Source: GSPO-token (arXiv 2507.18071, eq. 14); verl clamps the sequence's log-ratio at 10.
    Use with `sequence_mean`. A run gives every loss `learner.clip_low` and `learner.clip_high`, whose defaults are not
    these; on the policy that sampled the ratio is 1, and no clip cuts anything.
    """
    length_B = tokens.mask_BT.sum(-1).clamp_min(1)
    mean_B1 = (tokens.log_ratio_BT.sum(-1) / length_B).unsqueeze(-1)
    through_BT = tokens.logprobs_BT - tokens.logprobs_BT.detach()
    log_ratio_BT = (mean_B1.detach() + through_BT).clamp(max=10.0)
    return _surrogate(log_ratio_BT, tokens.advantage_B1, clip_low=clip_low, clip_high=clip_high)


def cispo(tokens: Tokens, *, clip_low: float = 1.0, clip_high: float = 5.0) -> Tensor:
    """-sg(min(r, clip_high)) A log pi: a truncated, detached ratio, so that no token loses its gradient.

    Source: CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4-5); TRL reads the cap as absolute, and so does this;
    5.0 is ScaleRL's. There is no lower clip.

    Raises:
        UserError: the cap is below 1, which would weigh on-policy tokens down.
    """
    del clip_low
    require_cap(clip_high)
    ratio_BT = tokens.log_ratio_BT.exp().clamp(max=clip_high).detach()
    return -ratio_BT * tokens.advantage_B1 * tokens.logprobs_BT


def require_cap(clip_high: float) -> None:
    """Check that `clip_high` is a cap that `cispo` can use.

    Raises:
        UserError: it is below 1.
    """
    if clip_high < 1.0:
        raise UserError(
            f"cispo reads clip_high as the absolute cap of the ratio, and {clip_high} is below 1",
            hint="-s learner.clip_high=5.0",
        )


Reduction = Callable[[Tensor], Tensor]
"""`(length_B: trained tokens of every sequence of the role) -> weight_B of each of its tokens`."""


def token_mean(length_B: Tensor) -> Tensor:
    """1 / all tokens: every token weighs the same. Source: DAPO (arXiv 2503.14476, 3.3)."""
    return torch.ones_like(length_B, dtype=torch.float64) / length_B.sum().clamp_min(1)


def sequence_mean(length_B: Tensor) -> Tensor:
    """1 / (B length): every sequence weighs the same. Source: GRPO (arXiv 2402.03300, eq. 3)."""
    return 1.0 / (length_B.clamp_min(1).to(torch.float64) * max(1, length_B.numel()))


def constant(length_B: Tensor, *, horizon: int) -> Tensor:
    """1 / (B horizon), whatever the lengths. Source: Dr. GRPO (arXiv 2503.20783, listing 1)."""
    return torch.ones_like(length_B, dtype=torch.float64) / (max(1, length_B.numel()) * horizon)


def total(loss_BT: Tensor, *, mask_BT: Tensor, weight_B: Tensor) -> Tensor:
    """Sum over tokens of weight x loss: a scalar."""
    per_sequence_B = loss_BT.masked_fill(~mask_BT, 0.0).sum(-1)
    return (per_sequence_B * weight_B.to(loss_BT.dtype)).sum()


@record
class Rule:
    """A loss by name: how a token's loss is computed and how sequences are weighed."""

    token_loss: TokenLoss
    reduction: Literal["token_mean", "sequence_mean", "constant"]


LOSSES: Mapping[str, Rule] = {
    "token_mean": Rule(token_loss=clipped, reduction="token_mean"),
    "sequence_mean": Rule(token_loss=clipped, reduction="sequence_mean"),
    "dr_grpo": Rule(token_loss=clipped, reduction="constant"),
    "dual_clip": Rule(token_loss=dual_clipped, reduction="token_mean"),
    "gspo": Rule(token_loss=gspo, reduction="sequence_mean"),
    "cispo": Rule(token_loss=cispo, reduction="token_mean"),
}
"""Losses by the name that a configuration uses; `token_mean` is DAPO's."""

Correction = Callable[..., Tensor]
"""`(old_BT, *, sampler_BT, mask_BT) -> weight_BT`, constant with regard to the weights."""


def _gap(old_BT: Tensor, sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return (old_BT - sampler_BT).detach().masked_fill(~mask_BT, 0.0)


def sequence_ratio(old_BT: Tensor, *, sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """exp(sum of log(pi_old / sampler)) of each sequence, clamped to exp(+-20)."""
    return _gap(old_BT, sampler_BT, mask_BT).sum(-1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def token_truncated(old_BT: Tensor, *, sampler_BT: Tensor, mask_BT: Tensor, cap: float = 2.0) -> Tensor:
    """min(pi_old / sampler, cap) a token. Source: TIS (Yao et al. 2025, "Off-policy RL from your rollout")."""
    return _gap(old_BT, sampler_BT, mask_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=cap)


def sequence_truncated(old_BT: Tensor, *, sampler_BT: Tensor, mask_BT: Tensor, cap: float = 2.0) -> Tensor:
    """min(sequence ratio, cap), the same for each of its tokens. Source: verl rollout correction, `sequence`."""
    ratio_B = sequence_ratio(old_BT, sampler_BT=sampler_BT, mask_BT=mask_BT).clamp(max=cap)
    return ratio_B.unsqueeze(-1).expand_as(old_BT)


def icepop(old_BT: Tensor, *, sampler_BT: Tensor, mask_BT: Tensor, low: float = 0.5, high: float = 2.0) -> Tensor:
    """pi_old / sampler where it lies in [low, high], else 0. Source: IcePop (Ring-1T, arXiv 2510.18855)."""
    ratio_BT = _gap(old_BT, sampler_BT, mask_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return ratio_BT.masked_fill((ratio_BT < low) | (ratio_BT > high), 0.0)


def sequence_masked(old_BT: Tensor, *, sampler_BT: Tensor, mask_BT: Tensor, cap: float = 3.0) -> Tensor:
    """The sequence ratio where it is at most `cap`, else 0. Source: TRL's default, `sequence_mask` (MIS)."""
    ratio_B = sequence_ratio(old_BT, sampler_BT=sampler_BT, mask_BT=mask_BT)
    return ratio_B.masked_fill(ratio_B > cap, 0.0).unsqueeze(-1).expand_as(old_BT)


CORRECTIONS: Mapping[str, Correction] = {
    "token_truncated": token_truncated,
    "sequence_truncated": sequence_truncated,
    "icepop": icepop,
    "sequence_masked": sequence_masked,
}
"""Corrections for a sampler whose probabilities differ from the learner's, by name."""


KL = Callable[[Tensor, Tensor], Tensor]
"""`(logprobs_BT, reference_BT) -> kl_BT`: how far the policy is from the reference, on tokens that it sampled.

As a *number* k1 and k3 are right on average. As a *loss*, which is what the learner adds, only k2 is: the expected
gradient of k1 is zero (it does not hold the policy back at all), that of k2 is the gradient of KL(pi || ref), and
that of k3 the gradient of KL(ref || pi), which agrees with it near the reference. All three are a token's own
divergence: what a token does to later ones is not in the gradient. Source: Schulman (2020) for the numbers; Tang
and Munos, "On a few pitfalls in KL divergence gradient estimation for RL" (arXiv 2506.09477) for the gradients.
"""


def k1(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """log pi - log ref: unbiased, high variance; its gradient is zero on average. Source: Schulman,
    "Approximating KL divergence" (2020).
    """
    return logprobs_BT - reference_BT


def k2(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """Half the square of k1: biased, low variance, with the gradient of KL(pi || ref). Source: as `k1`."""
    return 0.5 * (logprobs_BT - reference_BT).square()


def k3(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """e^d - d - 1 with d = log ref - log pi: unbiased, never negative, with the gradient of KL(ref || pi).

    Source: as `k1`; the clamps (+-20, then +-10) are verl's, whose gradient is zero beyond them.
    """
    gap_BT = (reference_BT - logprobs_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (gap_BT.exp() - gap_BT - 1.0).clamp(-10.0, 10.0)


KLS: Mapping[str, KL] = {"k1": k1, "k2": k2, "k3": k3}
"""Estimators of the divergence by the name that a configuration uses."""
