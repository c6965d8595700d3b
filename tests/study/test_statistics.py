"""Statistics of studies, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from selfplay.study.statistics import by_function, crossed, holm, paired, sign_flips


def test_functions_weigh_the_same_however_many_bugs_they_have() -> None:
    counts = {"f": {"x": (4, 1), "y": (4, 4)}, "g": {"z": (1, 1)}, "h": {"w": (4, 0)}}
    # pass@2 of x: 1 - C(3,2)/C(4,2) = 1/2; of y: 1. z has one attempt.
    assert by_function(counts, k=2) == {"f": 0.75, "h": 0.0}
    assert by_function(counts, k=1) == {"f": 0.625, "g": 1.0, "h": 0.0}


def test_pairs_are_of_seeds_and_functions_that_both_have() -> None:
    first = {0: {"f": 0.25, "g": 0.5}, 1: {"f": 0.0}, 2: {"f": 1.0}}
    second = {0: {"f": 0.75, "g": 0.5}, 1: {"f": 1.0, "h": 1.0}}
    assert paired(first, second) == {0: {"f": 0.5}, 1: {"f": 1.0}}
    assert paired({}, second) == {}


def test_seeds_and_functions_are_both_resampled() -> None:
    # Two seeds, one function: means of 0, 1/2 and 1 with chances 1/4, 1/2, 1/4.
    by_seed = crossed({0: {"f": 0.0}, 1: {"f": 1.0}})
    assert (by_seed.value, by_seed.low, by_seed.high, by_seed.units) == (0.5, 0.0, 1.0, 1)
    by_function = crossed({0: {"f": 0.0, "g": 1.0}, 1: {"f": 0.0, "g": 1.0}})
    assert (by_function.value, by_function.low, by_function.high, by_function.units) == (0.5, 0.0, 1.0, 2)
    same = crossed({0: {"f": 0.25, "g": 0.25}, 1: {"f": 0.25, "g": 0.25}})
    assert (same.value, same.low, same.high) == (0.25, 0.25, 0.25)
    assert crossed({}).value is None
    assert crossed({0: {}}).value is None


def test_the_interval_is_as_wide_as_both_kinds_of_chance_make_it() -> None:
    # Values s + f of 20 seeds and 50 functions, each 0 or 1 in equal parts: the mean's variance is 1/4/20 + 1/4/50 =
    # 0.0175, so 95 % lie within 1.96 * 0.1323 = 0.259 of the mean 1.
    table = {seed: {str(name): float(seed % 2 + name % 2) for name in range(50)} for seed in range(20)}
    found = crossed(table)
    assert found.value == pytest.approx(1.0)
    assert found.low == pytest.approx(1.0 - 0.259, abs=0.03)
    assert found.high == pytest.approx(1.0 + 0.259, abs=0.03)
    assert crossed(table) == found, "equal arguments give equal numbers"


def test_signs_of_differences() -> None:
    assert sign_flips([0.1, 0.1, 0.1]) == pytest.approx(2 / 8)
    assert sign_flips([0.2] * 8) == pytest.approx(2 / 256)
    assert sign_flips([1.0, -1.0]) == 1.0
    # |3 - 1 + 2| = 4; of the eight sums 6, 4, 2, 0 and their negatives four are as far.
    assert sign_flips([3.0, -1.0, 2.0]) == pytest.approx(4 / 8)
    assert sign_flips([0.0, 0.0]) == 1.0
    assert sign_flips([0.5] * 20) == pytest.approx(1 / 2001), "drawn, and no drawn one is as far"
    with pytest.raises(ValueError, match="no seed"):
        sign_flips([])


def test_holm() -> None:
    # 3 * 0.01; 2 * 0.03; 1 * 0.04 is below the one before it.
    assert list(holm({"a": 0.01, "b": 0.04, "c": 0.03}).items()) == [("a", 0.03), ("c", 0.06), ("b", 0.06)]
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
