from __future__ import annotations

import pytest

from selfplay.curriculum.interval import below, interval, quantile
from selfplay.curriculum.posterior import Beta


@pytest.mark.parametrize(
    ("alpha", "beta", "share", "expected"),
    [
        (1.0, 1.0, 0.05, 0.05),
        (1.0, 1.0, 0.95, 0.95),
        (2.0, 1.0, 0.25, 0.5),
        (1.0, 3.0, 0.875, 0.5),
        (5.0, 5.0, 0.5, 0.5),
        (0.5, 0.5, 0.25, 0.1464466),
    ],
)
def test_quantiles_that_have_a_closed_form(alpha: float, beta: float, share: float, expected: float) -> None:
    assert quantile(Beta(alpha=alpha, beta=beta), share) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", range(1, 8))
def test_whole_parameters_agree_with_the_binomial_sum(k: int) -> None:
    from math import comb

    # note: I_x(k, n - k + 1) is the chance of at least k of n.
    n, x = 8, 0.3
    chance = sum(comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(k, n + 1))
    assert below(Beta(alpha=k, beta=n - k + 1), x) == pytest.approx(chance, rel=1e-10)


@pytest.mark.parametrize("rate", [Beta(alpha=0.3, beta=0.5), Beta(alpha=40.0, beta=900.0), Beta(alpha=7.0, beta=0.1)])
def test_an_interval_holds_its_share_whatever_the_shape(rate: Beta) -> None:
    low, high = interval(rate, 0.8)
    assert 0.0 <= low < high <= 1.0
    assert below(rate, high) - below(rate, low) == pytest.approx(0.8, abs=1e-6)
    assert (below(rate, 0.0), below(rate, 1.0)) == (0.0, 1.0)
