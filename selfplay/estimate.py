"""Shares and their intervals: unbiased pass@k, bootstrap over tasks, the paired difference of two sides. Pure.

A task's attempts are not independent of each other, so intervals resample tasks, never attempts: the units (tasks, or
seeds for the share of valid proposals) are drawn with replacement, as many as there are, `RESAMPLES` times, and the
interval lies between the percentiles of the means (Efron 1979; percentile method). It says how far another draw of
tasks could move the figure. Where every unit has the same value the interval has no width, however few there are.

Not here: which plays count (`views.evaluation`), drawing them (`evaluation`). Standard library only.

Example:
    >>> pass_at_k(4, 1, 2)
    0.5
    >>> pass_rate({"a": (4, 1), "b": (4, 4), "c": (1, 0)}, k=2).value
    0.75
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from selfplay.types import draw, record

RESAMPLES = 2_000
"""Bootstrap resamples of every interval."""

LEVEL = 0.95
"""Coverage that an interval is made for."""

Counts = Mapping[str, tuple[int, int]]
"""Task id -> (decided attempts, passed ones)."""


@record
class Estimate:
    """A mean over units, with its interval."""

    value: float | None
    """None where there is no unit."""
    low: float | None
    high: float | None
    units: int
    """Tasks (or seeds) that it is the mean of."""
    left_out: int = 0
    """Units with too few decided attempts for it."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of `k` attempts drawn from `n`, of which `c` passed, passed.

    1 - C(n - c, k) / C(n, k), which is unbiased for pass@k: Chen et al. 2021, arXiv 2107.03374, equation 1.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {n} attempts, {c} of them passed")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_rate(counts: Counts, *, k: int, seed: int = 0) -> Estimate:
    """Mean of `pass_at_k` over the tasks with at least `k` decided attempts; the other tasks are left out."""
    values = [pass_at_k(n, c, k) for _, (n, c) in sorted(counts.items()) if n >= k]
    return mean(values, seed=seed, left_out=len(counts) - len(values))


def difference(first: Counts, second: Counts, *, k: int, seed: int = 0) -> Estimate:
    """Mean of `second`'s pass@k less `first`'s, over the tasks that both have `k` decided attempts on.

    Tasks are resampled in pairs, so that what makes a task hard for both sides does not widen the interval.
    """
    both = [task for task in sorted(first.keys() & second.keys()) if min(first[task][0], second[task][0]) >= k]
    values = [pass_at_k(*second[task], k) - pass_at_k(*first[task], k) for task in both]
    return mean(values, seed=seed, left_out=len(first.keys() | second.keys()) - len(values))


def mean(values: Sequence[float], *, seed: int = 0, left_out: int = 0) -> Estimate:
    """The mean of `values`, one a unit, with its bootstrap interval; equal arguments give equal numbers."""
    if not values:
        return Estimate(value=None, low=None, high=None, units=0, left_out=left_out)
    low, high = _interval(values, seed=seed)
    return Estimate(value=math.fsum(values) / len(values), low=low, high=high, units=len(values), left_out=left_out)


def _interval(values: Sequence[float], *, seed: int) -> tuple[float, float]:
    if min(values) == max(values):
        return values[0], values[0]
    source = random.Random(draw("bootstrap", seed, len(values)))
    means = sorted(sum(source.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    tail = (1.0 - LEVEL) / 2
    return _percentile(means, tail), _percentile(means, 1.0 - tail)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of `ordered` lies, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
