"""How far apart two arms are, and how sure one can be of it. Pure; standard library only.

A figure of an arm is a mean over seeds of the mean over functions of the mean over the function's bugs of pass@k. Seeds
and functions are crossed: every seed is asked the same bugs. So both are resampled, each by itself, and arms in pairs.

Not here: which results are compared (`page`), pass@k of one task (`estimate`).

Example:
    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from itertools import product

from selfplay.estimate import LEVEL, RESAMPLES, Estimate, pass_at_k
from selfplay.types import draw

Table = Mapping[int, Mapping[str, float]]
"""Seed -> function -> value. Every seed has the same functions."""

Counts = Mapping[str, Mapping[str, tuple[int, int]]]
"""Function -> bug -> (decided attempts, passed ones)."""

EXACT = 12
"""Up to so many seeds all changes of sign are looked at; with more, `RESAMPLES` drawn ones."""


def by_function(counts: Counts, *, k: int) -> dict[str, float]:
    """Function -> mean of pass@k over its bugs with at least `k` decided attempts; functions without one are left out.

    pass@k of a bug: Chen et al. 2021, arXiv 2107.03374, equation 1 (`estimate.pass_at_k`).
    """
    found = {}
    for function, bugs in counts.items():
        values = [pass_at_k(n, c, k) for n, c in bugs.values() if n >= k]
        if values:
            found[function] = math.fsum(values) / len(values)
    return found


def paired(first: Table, second: Table) -> dict[int, dict[str, float]]:
    """`second` less `first`, on the seeds that both have and the functions that all of these have."""
    seeds = sorted(first.keys() & second.keys())
    both = [set(side[seed]) for seed in seeds for side in (first, second)]
    functions = sorted(set.intersection(*both)) if both else []
    return {seed: {name: second[seed][name] - first[seed][name] for name in functions} for seed in seeds}


def effect(having: Sequence[Table], lacking: Sequence[Table]) -> dict[int, dict[str, float]]:
    """The mean of the tables in `having` less that of those in `lacking`, on the seeds and functions of all."""
    every = [*having, *lacking]
    seeds = sorted(set.intersection(*(set(table) for table in every))) if every else []
    of_all = [set(table[seed]) for table in every for seed in seeds]
    functions = sorted(set.intersection(*of_all)) if of_all else []

    def mean(tables: Sequence[Table], seed: int, name: str) -> float:
        return math.fsum(table[seed][name] for table in tables) / len(tables)

    return {seed: {name: mean(having, seed, name) - mean(lacking, seed, name) for name in functions} for seed in seeds}


def crossed(table: Table, *, resamples: int = RESAMPLES, key: str = "") -> Estimate:
    """The mean of a table, with an interval that resamples seeds and functions, each by itself, with replacement.

    The pigeonhole bootstrap for crossed random effects: Owen 2007, arXiv 0712.1111, section 2; percentile interval
    (Efron 1979). It errs towards wide intervals. Of one seed only functions are resampled, which the page says; few
    seeds give too narrow a view of how seeds differ, whatever the method.

    Returns:
        The estimate; its units are the functions. Without a value where the table is empty.
    """
    rows = [list(table[seed].values()) for seed in sorted(table)]
    if not rows or not rows[0]:
        return Estimate(value=None, low=None, high=None, units=0)
    count, width = len(rows), len(rows[0])
    value = math.fsum(map(math.fsum, rows)) / (count * width)
    source = random.Random(draw("crossed", key, count, width))
    means = []
    for _ in range(resamples):
        some = source.choices(range(width), k=width)
        chosen = source.choices(rows, k=count)
        means.append(sum(row[place] for row in chosen for place in some) / (count * width))
    means.sort()
    tail = (1.0 - LEVEL) / 2
    return Estimate(value=value, low=_percentile(means, tail), high=_percentile(means, 1.0 - tail), units=width)


def sign_flips(differences: Sequence[float], *, key: str = "") -> float:
    """Two-sided p-value that paired differences, one a seed, are centred on zero: changes of their signs.

    The share of all 2^n ways to give the differences signs whose mean is at least as far from zero as theirs (Fisher's
    randomisation test for pairs: Fisher 1935, The Design of Experiments, section 21). n seeds cannot give less than
    2 / 2^n: three 0.25, eight 0.0078. With more than `EXACT` seeds signs are drawn, and the share counts the
    differences as they are as well, (b + 1) / (m + 1): Davison and Hinkley 1997, Bootstrap Methods, section 4.2.

    Raises:
        ValueError: there is no difference.
    """
    if not differences:
        raise ValueError("no seed to compare on")
    least = abs(math.fsum(differences)) - 1e-12
    if len(differences) <= EXACT:
        every = [math.fsum(s * d for s, d in zip(signs, differences, strict=True)) for signs in _signs(differences)]
        return sum(abs(total) >= least for total in every) / len(every)
    source = random.Random(draw("signs", key, len(differences)))
    far = sum(
        abs(math.fsum(source.choice((-1.0, 1.0)) * one for one in differences)) >= least for _ in range(RESAMPLES)
    )
    return (far + 1) / (RESAMPLES + 1)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p-values of a family of comparisons, corrected so that any false one has at most the level's chance; ascending.

    The i-th smallest of m is multiplied by m - i + 1, never below the one before it, at most 1: Holm 1979, Scandinavian
    Journal of Statistics 6, pages 65 to 70.
    """
    found, before = {}, 0.0
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda pair: (pair[1], pair[0]))):
        before = max(before, min(1.0, (len(values) - place) * value))
        found[name] = before
    return found


def by_chance(effects: Mapping[str, float], *, key: str = "") -> dict[str, float]:
    """p-values of the effects of an experiment without repetitions: how often chance alone makes one so far from zero.

    The effects' spread is told from the effects themselves, most of which are taken to be chance: 1.5 times the median
    size of those below 2.5 times 1.5 times the median size (Lenth 1989, Technometrics 31, pages 469 to 473). How far an
    effect lies in such spreads is held against as many drawn from one normal distribution. Not corrected for their
    number. Nothing is said of fewer than three.
    """
    if len(effects) < 3 or not _spread(list(effects.values())):
        return {}
    source = random.Random(draw("effects", key, len(effects)))
    null: list[float] = []
    for _ in range(RESAMPLES):
        drawn = [source.gauss(0.0, 1.0) for _ in effects]
        spread = _spread(drawn)
        null += [abs(one) / spread for one in drawn]
    spread = _spread(list(effects.values()))
    return {
        name: (sum(far >= abs(value) / spread for far in null) + 1) / (len(null) + 1) for name, value in effects.items()
    }


def _spread(effects: Sequence[float]) -> float:
    """Lenth's pseudo standard error."""
    sizes = [abs(one) for one in effects]
    first = 1.5 * statistics.median(sizes)
    return 1.5 * statistics.median([size for size in sizes if size <= 2.5 * first])


def _signs(differences: Sequence[float]) -> list[tuple[float, ...]]:
    return list(product((1.0, -1.0), repeat=len(differences)))


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
