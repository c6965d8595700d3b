"""Advantages: how much better than expected a reward was. Pure, without torch.

A function of one group takes its rewards and returns one number a member. An `Estimator` takes all
groups of one role in one step, and where it asks for them the role's earlier rewards, which the ledger
keeps: nothing is remembered here, so a resumed or replayed step gives the same numbers. Roles never mix.

A group without variance (a group of one has none) teaches nothing to the estimators that compare
siblings: its advantages are zeros. `raw`, `spiral` and `dr_mas` compare with something else, and serve it.

Not here: which rewards form a group (`batches`), losses (`grpo`).

Example:
    >>> grpo([1.0, 0.0])
    (0.7071057811865378, -0.7071057811865378)
    >>> ESTIMATORS["spiral"].of_role([[1.0], [0.0]], [1.0])
    ((0.95,), (-0.050000000000000044,))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from selfplay.errors import RunFailed
from selfplay.types import record

VARIANCE_FLOOR = 1e-6
"""Rewards closer together than this are the same (SkyRL's zero-variance tolerance)."""

SPIRAL_DECAY = 0.95
"""Of SPIRAL's baseline, as in its code."""

SPIRAL_PAST = 1024
"""Rewards that SPIRAL's baseline reads: an older one weighs below 0.95^1024 = 2e-23, nothing in float64."""

Advantages = Callable[[Sequence[float]], Sequence[float]]
"""Rewards of one group -> advantages, one a member."""

OfRole = Callable[[Sequence[Sequence[float]], Sequence[float]], Sequence[Sequence[float]]]
"""(Rewards of each group of a role in a step, the role's earlier rewards, oldest first) -> advantages in that shape."""


@record
class Estimator:
    """How the rewards of one role in one step become advantages."""

    of_role: OfRole
    past: int = 0
    """How many of the role's newest rewards of closed steps it reads."""
    by_role: Mapping[str, Estimator] = field(default_factory=dict)
    """Estimators in this one's place, for the roles named: SSP (arXiv 2510.18821) has one for each."""


def has_variance(rewards: Sequence[float]) -> bool:
    """True where siblings differ: two members or more, whose rewards are not the same.

    Raises:
        RunFailed: a reward is not finite; nothing can be compared with it.
    """
    if not all(map(math.isfinite, rewards)):
        raise RunFailed(f"a group's rewards are not finite: {list(rewards)}")
    return len(rewards) > 1 and max(rewards) - min(rewards) > VARIANCE_FLOOR


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _std(values: Sequence[float], *, ddof: int) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - ddof))


def grpo(rewards: Sequence[float], *, ddof: int = 1, eps: float = 1e-6) -> tuple[float, ...]:
    """(R - mean) / (std + eps) within the group; zeros where it has no variance.

    Source: GRPO (arXiv 2402.03300, 4.1.2). verl: ddof 1, eps 1e-6. TRL: ddof 1, eps 1e-4; its
    asynchronous trainer: ddof 0, eps 1e-8. (verl gives R itself for a group of one; here it is 0.)
    """
    if not has_variance(rewards):
        return (0.0,) * len(rewards)
    scale = _std(rewards, ddof=ddof) + eps
    return tuple(centred / scale for centred in dr_grpo(rewards))


def dr_grpo(rewards: Sequence[float]) -> tuple[float, ...]:
    """R - mean within the group. Source: Dr. GRPO (arXiv 2503.20783); verl `norm_adv_by_std_in_grpo=False`."""
    if not has_variance(rewards):
        return (0.0,) * len(rewards)
    mean = _mean(rewards)
    return tuple(reward - mean for reward in rewards)


def rloo(rewards: Sequence[float]) -> tuple[float, ...]:
    """R - mean of the others = n/(n-1) (R - mean). Source: RLOO (arXiv 2402.14740); verl `rloo`."""
    size = len(rewards)
    return tuple(centred * size / max(1, size - 1) for centred in dr_grpo(rewards))


def raw(rewards: Sequence[float]) -> tuple[float, ...]:
    """The rewards themselves: plain REINFORCE, for recipes without a baseline."""
    return tuple(float(reward) for reward in rewards)


def batch_std(groups: Sequence[Sequence[float]], *, ddof: int = 1, eps: float = 1e-4) -> tuple[tuple[float, ...], ...]:
    """(R - mean of its group) / (std of all rewards + eps). Source: TRL `scale_rewards="batch"`; LitePPO.

    TRL takes the rewards of the whole batch, which has one role; here they are those of the role.
    """
    pooled = [reward for group in groups for reward in group]
    if not has_variance(pooled):
        return tuple((0.0,) * len(group) for group in groups)
    scale = _std(pooled, ddof=ddof) + eps
    return tuple(tuple(centred / scale for centred in dr_grpo(group)) for group in groups)


def dr_mas(groups: Sequence[Sequence[float]], *, ddof: int = 1, eps: float = 1e-6) -> tuple[tuple[float, ...], ...]:
    """(R - mean) / (std + eps), both over all rewards of the agent in the step; zeros where these are all the same.

    Source: Dr. MAS (arXiv 2602.08847): A = (R - mu_k) / sigma_k with the statistics of agent k; an agent is a
    role. Its code groups by prompt and agent, which is `grpo`; here the agent's prompts are pooled, as in the
    formula. ddof and eps are those of the verl it is built on.
    """
    pooled = [reward for group in groups for reward in group]
    if not has_variance(pooled):
        return tuple((0.0,) * len(group) for group in groups)
    mean, scale = _mean(pooled), _std(pooled, ddof=ddof) + eps
    return tuple(tuple((reward - mean) / scale for reward in group) for group in groups)


def baseline(past: Sequence[float], *, decay: float = SPIRAL_DECAY) -> float:
    """SPIRAL's moving average after the rewards `past`, oldest first: b <- decay b + (1 - decay) R, from b = 0."""
    moving = 0.0
    for reward in past:
        moving = decay * moving + (1.0 - decay) * reward
    return moving


def spiral(
    groups: Sequence[Sequence[float]], past: Sequence[float], *, decay: float = SPIRAL_DECAY
) -> tuple[tuple[float, ...], ...]:
    """R - b, b the role's moving average before the step.

    Source: role-conditioned advantage estimation, SPIRAL (arXiv 2506.24119); its code has decay 0.95, and prime-rl
    (`rae`) scores first and updates then, as this does. Both update after every single reward; here a
    step's rewards share one b, so that their order does not matter, and enter it together, in recorded order.
    """
    expected = baseline(past, decay=decay)
    return tuple(tuple(reward - expected for reward in group) for group in groups)


def by_group(function: Advantages) -> Estimator:
    """The estimator that applies `function` to each group that has variance, and gives zeros to the others."""

    def of_role(groups: Sequence[Sequence[float]], past: Sequence[float]) -> list[Sequence[float]]:
        del past
        return [function(group) if has_variance(group) else (0.0,) * len(group) for group in groups]

    return Estimator(of_role=of_role)


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": by_group(grpo),
    "dr_grpo": by_group(dr_grpo),
    "rloo": by_group(rloo),
    "batch_std": Estimator(of_role=lambda groups, past: batch_std(groups)),
    "dr_mas": Estimator(of_role=lambda groups, past: dr_mas(groups)),
    "spiral": Estimator(of_role=spiral, past=SPIRAL_PAST),
    "raw": Estimator(of_role=lambda groups, past: tuple(raw(group) for group in groups)),
}
"""Estimators by the name that a configuration uses."""
