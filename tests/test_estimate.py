"""pass@k against enumeration, intervals against what is known of them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from selfplay.estimate import RESAMPLES, Estimate, difference, mean, pass_at_k, pass_rate


@pytest.mark.parametrize("n", range(1, 8))
def test_every_small_case_is_the_share_of_subsets_with_a_pass(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        share = Fraction(sum(map(any, subsets)), len(subsets))
        assert pass_at_k(n, c, k) == pytest.approx(float(share), abs=1e-15)


def test_closed_forms() -> None:
    assert pass_at_k(8, 3, 1) == 3 / 8
    assert pass_at_k(8, 0, 8) == 0.0
    assert pass_at_k(8, 1, 8) == 1.0
    assert pass_at_k(200, 30, 100) == pytest.approx(1.0 - math.prod(1 - 100 / i for i in range(171, 201)), abs=1e-12)


def test_it_is_unbiased() -> None:
    p, n, k = 0.3, 6, 3
    expected = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert expected == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_what_cannot_be_estimated(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot be estimated"):
        pass_at_k(n, c, k)


def test_tasks_with_too_few_decided_attempts_are_left_out_and_counted() -> None:
    found = pass_rate({"a": (4, 1), "b": (4, 4), "c": (1, 0), "d": (0, 0)}, k=2)
    assert (found.value, found.units, found.left_out) == (0.75, 2, 2)
    assert pass_rate({"a": (1, 1)}, k=2) == Estimate(value=None, low=None, high=None, units=0, left_out=1)
    assert pass_rate({}, k=1) == Estimate(value=None, low=None, high=None, units=0)


def test_the_interval_is_that_of_the_resampled_means() -> None:
    # of two units the resampled mean is 0, 1/2 or 1, with chances 1/4, 1/2, 1/4
    assert (mean([0.0, 1.0]).low, mean([0.0, 1.0]).high) == (0.0, 1.0)
    values = [float(i % 4 == 0) for i in range(400)]
    found = mean(values)
    wide = 1.96 * math.sqrt(0.25 * 0.75 / 400)
    assert found.value == 0.25
    assert found.low == pytest.approx(0.25 - wide, abs=0.006)
    assert found.high == pytest.approx(0.25 + wide, abs=0.006)
    assert RESAMPLES == 2_000


def test_equal_arguments_give_equal_numbers_and_other_seeds_others() -> None:
    values = [0.1 * i for i in range(9)]
    assert mean(values, seed=1) == mean(values, seed=1)
    assert {(mean(values, seed=s).low, mean(values, seed=s).high) for s in range(4)} != {(mean(values).low, None)}
    assert mean([0.5] * 5).low == mean([0.5] * 5).high == 0.5


def test_a_paired_difference_is_narrower_than_what_the_tasks_differ_by() -> None:
    first = {f"t{i}": (4, i % 5) for i in range(40)}
    second = {name: (n, min(4, c + 1)) for name, (n, c) in first.items()}
    found = difference(first, second, k=1)
    alone = pass_rate(first, k=1)
    assert found.value == pytest.approx(0.2)
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.low > 0
    assert found.high - found.low < (alone.high - alone.low) / 2
    assert difference(first, {**second, "t0": (0, 0), "new": (4, 4)}, k=1).left_out == 2
