"""How likely a task is solved: a Beta posterior instead of a fraction, and what it says about learning.

What is covered: the posterior of one task (attempts of all its plays, older ones worth less the further the policy has
moved since), the prior of a cell fitted from first attempts only, learnability, and the solve rate that a proposer's
reward pays best. What is not: where the attempts come from (`history`), which task is played (`pool`).

A task's decayed posterior falls back to its cell's prior, and the prior rests on first attempts: a task that nobody can
solve keeps its own weight in it, and ageing can give it no more than the chance that a task of its cell had at first.

Example:
    >>> round(of(solved=2, decided=8).learnability(), 4)
    0.1909
    >>> round(optimum(8), 3)
    0.257
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import comb, exp, lgamma, sqrt

from selfplay.types import record

STRENGTHS = (0.5, 50.0)
"""Fewest and most attempts that a fitted prior counts for."""
POINTS = 2000
"""Points at which `best_rate` looks."""


@record
class Beta:
    """A distribution over solve rates: `alpha - 1` successes and `beta - 1` failures beyond a uniform one."""

    alpha: float = 1.0
    beta: float = 1.0

    @property
    def mean(self) -> float:
        """The expected solve rate."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def strength(self) -> float:
        """How many attempts it is worth."""
        return self.alpha + self.beta

    @property
    def deviation(self) -> float:
        """The standard deviation of the solve rate."""
        return sqrt(self.mean * (1.0 - self.mean) / (self.strength + 1.0))

    def after(self, solved: float, failed: float) -> Beta:
        """The posterior after that many more attempts, which may be fractions."""
        return Beta(alpha=self.alpha + solved, beta=self.beta + failed)

    def learnability(self, target: float = 0.5) -> float:
        """E[p^2t (1-p)^2(1-t)], which is highest for rates near the target t; at t = 0.5 it is E[p (1-p)].

        E[p (1-p)] = alpha beta / ((alpha+beta) (alpha+beta+1)), for a uniform prior (k+1)(n-k+1)/((n+2)(n+3)): the
        score p(1-p) of Sampling for Learnability (arXiv 2408.15099) under what k of n attempts leave open.

        Raises:
            ValueError: the target is not inside 0 to 1.
        """
        if not 0.0 < target < 1.0:
            raise ValueError(f"a target solve rate lies between 0 and 1, not at {target:g}")
        a, b, up, down = self.alpha, self.beta, 2.0 * target, 2.0 * (1.0 - target)
        if target == 0.5:
            return a * b / ((a + b) * (a + b + 1.0))
        return exp(lgamma(a + up) + lgamma(b + down) + lgamma(a + b) - lgamma(a) - lgamma(b) - lgamma(a + b + 2.0))


UNIFORM = Beta()
"""Every solve rate is as likely as any other."""


def of(*, solved: float, decided: float, prior: Beta = UNIFORM) -> Beta:
    """The posterior after `solved` of `decided` attempts.

    Raises:
        ValueError: counts that cannot be.
    """
    if not 0 <= solved <= decided:
        raise ValueError(f"{solved:g} of {decided:g} attempts solved")
    return prior.after(solved, decided - solved)


def decayed(results: Iterable[tuple[float, int, int]], *, prior: Beta, half_life: float) -> Beta:
    """The posterior of `results`, each (how far the policy has moved since, decided, solved).

    A result counts half as much for each `half_life` of movement, in the same unit.
    """
    alpha, beta = prior.alpha, prior.beta
    for moved, decided, solved in results:
        weight = 0.5 ** (moved / half_life)
        alpha, beta = alpha + weight * solved, beta + weight * (decided - solved)
    return Beta(alpha=alpha, beta=beta)


def fit(first: Sequence[tuple[int, int]], *, towards: Beta = UNIFORM, shrinkage: float = 4.0) -> Beta:
    """The Beta of a cell's solve rates from first attempts, each (decided, solved), by the method of moments.

    The mean is the pooled rate. The share rho = 1 / (alpha + beta + 1) of the variance that lies between tasks comes
    from the analysis of variance: E[sum n (s - m)^2] = m (1-m) [(M-1)(1-rho) + (N - sum n^2 / N) rho] for M tasks
    with N attempts. Both are shrunk as if `shrinkage` more tasks behaved as `towards` says; without attempts it is
    `towards` itself.
    """
    played = [(decided, solved) for decided, solved in first if decided > 0]
    attempts, solved = sum(n for n, _ in played), sum(k for _, k in played)
    if not attempts:
        return towards
    rho = 1.0 / (towards.strength + 1.0)
    pseudo = shrinkage * attempts / len(played)
    mean = (solved + pseudo * towards.mean) / (attempts + pseudo)
    raw = solved / attempts
    spread = attempts - sum(n * n for n, _ in played) / attempts - (len(played) - 1)
    if spread > 0.0 and 0.0 < raw < 1.0:
        between = sum(n * (k / n - raw) ** 2 for n, k in played) / (raw * (1.0 - raw))
        found = min(1.0, max(0.0, (between - (len(played) - 1)) / spread))
        rho = (len(played) * found + shrinkage * rho) / (len(played) + shrinkage)
    low, high = STRENGTHS
    strength = min(high, max(low, 1.0 / max(rho, 1e-9) - 1.0))
    return Beta(alpha=strength * mean, beta=strength * (1.0 - mean))


def optimum(attempts: int) -> float:
    """The solve rate at which SSR's expected reward is highest: p* = 1 - G^(-1/(G-1)), G attempts.

    The expectation is 1 - (1 + alpha) (p + (1 - p)^G) for k ~ Binomial(G, p); alpha does not move its maximum.
    """
    return 1.0 - attempts ** (-1.0 / (attempts - 1)) if attempts > 1 else 0.0


def expected(reward: Callable[[int, int], float], rate: float, attempts: int) -> float:
    """What `reward(passed, attempts)` pays on average for a task of that solve rate."""
    chances = (comb(attempts, k) * rate**k * (1.0 - rate) ** (attempts - k) for k in range(attempts + 1))
    return sum(chance * reward(k, attempts) for k, chance in enumerate(chances))


def best_rate(reward: Callable[[int, int], float], attempts: int) -> float:
    """The solve rate at which a proposer's reward pays most, to three digits; the lowest where several do."""
    points = [i / POINTS for i in range(POINTS + 1)]
    worth = [expected(reward, rate, attempts) for rate in points]
    best = max(worth)
    return next(rate for rate, value in zip(points, worth, strict=True) if value >= best - 1e-12)
