"""Between which solve rates a posterior lies: quantiles of a Beta distribution, from the standard library alone.

What is covered: the regularised incomplete beta function by its continued fraction (Lentz's method, as in Numerical
Recipes, section 6.4) and its inverse by bisection. What is not: the posterior itself (`posterior`).

Example:
    >>> [round(bound, 3) for bound in interval(Beta(alpha=3.0, beta=7.0))]
    [0.098, 0.55]
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p

from selfplay.curriculum.posterior import Beta

SHARE = 0.9
"""Of the posterior that an interval holds."""
TERMS = 300
"""Of the continued fraction at most; it needs about the square root of the larger parameter."""
HALVINGS = 60
TINY = 1e-300


def interval(rate: Beta, share: float = SHARE) -> tuple[float, float]:
    """The equal-tailed interval that holds `share` of the posterior, as (low, high)."""
    tail = (1.0 - share) / 2.0
    return quantile(rate, tail), quantile(rate, 1.0 - tail)


def quantile(rate: Beta, share: float) -> float:
    """The solve rate below which `share` of the posterior lies."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if below(rate, middle) < share else (low, middle)
    return (low + high) / 2.0


def below(rate: Beta, x: float) -> float:
    """The share of the posterior below the solve rate `x`: I_x(alpha, beta)."""
    if not 0.0 < x < 1.0:
        return 0.0 if x <= 0.0 else 1.0
    a, b = rate.alpha, rate.beta
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    # note: the fraction converges fast on this side of the mean only; the other side is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _apart(1.0 - (a + b) * x / (a + 1.0))
    found = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _apart(1.0 + term * d)
            c = _apart(1.0 + term / c)
            found *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return found


def _apart(value: float) -> float:
    return value if abs(value) > TINY else TINY
