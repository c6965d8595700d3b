"""The posterior against counting and integration: exact where there is a formula, close where it is fitted."""

from __future__ import annotations

import random

import pytest

from selfplay.curriculum.posterior import UNIFORM, Beta, best_rate, decayed, expected, fit, of, optimum
from selfplay.games.rewards import PROPOSER, SelfPlaySwe, proposer_reward


@pytest.mark.parametrize("solved", range(9))
def test_learnability_of_k_of_eight(solved: int) -> None:
    found = of(solved=solved, decided=8).learnability()
    assert found == pytest.approx((solved + 1) * (8 - solved + 1) / (10 * 11))


@pytest.mark.parametrize("target", [0.2, 0.5, 0.7])
def test_learnability_is_an_integral_and_peaks_at_its_target(target: float) -> None:
    beta = Beta(alpha=2.5, beta=4.0)
    points = [(i + 0.5) / 20_000 for i in range(20_000)]
    density = [p**1.5 * (1 - p) ** 3 for p in points]
    worth = sum(d * p ** (2 * target) * (1 - p) ** (2 - 2 * target) for d, p in zip(density, points, strict=True))
    assert beta.learnability(target) == pytest.approx(worth / sum(density), rel=1e-4)
    sure = {rate: Beta(alpha=1e4 * rate, beta=1e4 * (1 - rate)).learnability(target) for rate in (0.1, target, 0.9)}
    assert max(sure, key=lambda rate: sure[rate]) == target


def test_impossible_counts_and_targets_are_errors() -> None:
    with pytest.raises(ValueError, match="9 of 8"):
        of(solved=9, decided=8)
    with pytest.raises(ValueError, match="between 0 and 1"):
        UNIFORM.learnability(1.0)


def test_old_attempts_count_less_the_further_the_policy_moved() -> None:
    prior = Beta(alpha=1.0, beta=3.0)
    fresh = decayed([(0.0, 8, 8)], prior=prior, half_life=10.0)
    old = decayed([(10.0, 8, 8)], prior=prior, half_life=10.0)
    ancient = decayed([(1000.0, 8, 8)], prior=prior, half_life=10.0)
    assert (fresh.strength, old.strength) == (12.0, 8.0)
    assert ancient.mean == pytest.approx(prior.mean)
    assert fresh.mean > old.mean > ancient.mean


def test_the_fit_finds_the_prior_that_made_the_attempts() -> None:
    draw = random.Random(1)
    rates = [draw.betavariate(0.6, 1.2) for _ in range(2000)]
    first = [(8, sum(draw.random() < rate for _ in range(8))) for rate in rates]
    found = fit(first)
    assert found.alpha == pytest.approx(0.6, abs=0.08)
    assert found.beta == pytest.approx(1.2, abs=0.15)


def test_the_fit_of_little_stays_near_what_it_is_shrunk_towards() -> None:
    assert fit([]) == fit([(0, 0)]) == UNIFORM
    towards = Beta(alpha=4.0, beta=1.0)
    assert fit([(8, 0)], towards=towards).mean == pytest.approx(0.64)
    none, everything = fit([(8, 0)] * 20), fit([(8, 8)] * 20)
    assert none.mean < 0.1 < 0.9 < everything.mean
    assert none.learnability() < 0.06


def test_an_impossible_task_gets_no_more_than_its_cell_by_ageing() -> None:
    cell = fit([(8, 0)] * 19 + [(8, 4)])
    aged = decayed([(1e6, 8, 0)], prior=cell, half_life=30.0)
    assert aged.learnability() <= cell.learnability() < of(solved=4, decided=8).learnability() / 4


@pytest.mark.parametrize("size", [2, 4, 5, 8, 16])
def test_ssr_pays_most_at_its_closed_form(size: int) -> None:
    ssr = SelfPlaySwe(min_viable=1)
    assert best_rate(lambda k, n: ssr(True, k, n) or 0.0, size) == pytest.approx(optimum(size), abs=1e-3)
    assert optimum(1) == 0.0


def test_what_the_other_rewards_ask_for() -> None:
    asked = {}
    for name in PROPOSER:
        reward = proposer_reward(name)
        if name != "hint_regret":
            asked[name] = best_rate(lambda k, n, reward=reward: reward(True, k, n) or 0.0, 8)  # type: ignore[misc]
    assert asked["ssp"] == 0.0
    assert asked["rzero"] == asked["learnability"] == asked["spice"] == 0.5
    assert 0.1 < asked["azr"] == asked["drzero"] or asked["drzero"] > 0.1
    assert expected(lambda k, n: k / n, 0.3, 8) == pytest.approx(0.3)
