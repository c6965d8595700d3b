"""Estimators of a role: what serves a group of one, whose statistics they use, and the moving baseline."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from selfplay.errors import RunFailed
from selfplay.learner.estimators import (
    ESTIMATORS,
    SPIRAL_PAST,
    Advantages,
    baseline,
    batch_std,
    by_group,
    dr_grpo,
    dr_mas,
    grpo,
    has_variance,
    raw,
    rloo,
    spiral,
)


def flat(groups: Sequence[Sequence[float]]) -> list[float]:
    return [value for group in groups for value in group]


def test_every_name_gives_one_advantage_a_reward() -> None:
    groups = [[1.0, 0.0, 0.5], [], [2.0], [0.0, 0.0]]
    for name, estimator in ESTIMATORS.items():
        found = estimator.of_role(groups, [0.5])
        assert [len(values) for values in found] == [3, 0, 1, 2], name
        assert list(estimator.of_role([], [])) == [], name


def test_the_moving_average_is_the_recursion_from_zero() -> None:
    assert baseline([]) == 0.0
    assert baseline([1.0]) == pytest.approx(0.05, abs=1e-15)
    assert baseline([1.0, -1.0]) == pytest.approx(0.95 * 0.05 - 0.05, abs=1e-15)
    assert baseline([0.7] * 1000) == pytest.approx(0.7, abs=1e-12)
    assert baseline([1.0, 0.0], decay=0.5) == 0.25


def test_what_spiral_does_not_read_would_not_show() -> None:
    chance = random.Random(1)
    history = [chance.uniform(-1.0, 1.0) for _ in range(3 * SPIRAL_PAST)]
    assert baseline(history[-SPIRAL_PAST:]) == baseline(history)


def test_spiral_takes_the_baseline_off_every_reward() -> None:
    past = [1.0] * 10
    expected = 1.0 - 0.95**10
    assert flat(spiral([[1.0, 0.0], [0.5]], past)) == pytest.approx(
        [1 - expected, -expected, 0.5 - expected], abs=1e-12
    )


def test_the_statistics_of_dr_mas_are_the_role_s() -> None:
    groups = [[1.0, 0.0], [0.5], [0.25]]
    rewards = flat(groups)
    mean = sum(rewards) / 4
    std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 3)
    assert flat(dr_mas(groups)) == pytest.approx([(r - mean) / (std + 1e-6) for r in rewards], abs=1e-12)
    assert flat(dr_mas([[0.5, 0.5], [0.5]])) == [0.0, 0.0, 0.0]
    assert flat(dr_mas([rewards])) == pytest.approx(grpo(rewards), abs=1e-12), "one group: as `grpo`"


def test_batch_std_centres_in_the_group_and_divides_by_the_role_s_spread() -> None:
    groups = [[1.0, 0.0], [0.5, 0.5], [0.25]]
    found = batch_std(groups)
    assert found[1:] == ((0.0, 0.0), (0.0,))
    rewards = flat(groups)
    mean = sum(rewards) / 5
    std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 4)
    assert found[0] == pytest.approx([0.5 / (std + 1e-4), -0.5 / (std + 1e-4)], abs=1e-12)


@pytest.mark.parametrize("function", [grpo, dr_grpo, rloo, raw])
def test_a_function_of_one_group_sees_groups_with_variance_only(function: Advantages) -> None:
    groups = [[1.0, 0.0], [3.0], [2.0, 2.0]]
    assert list(by_group(function).of_role(groups, [])) == [function([1.0, 0.0]), (0.0,), (0.0, 0.0)]


def test_better_is_never_worth_less() -> None:
    chance = random.Random(2)
    for _ in range(50):
        groups = [[chance.uniform(-1, 1) for _ in range(chance.randint(1, 6))] for _ in range(chance.randint(1, 5))]
        past = [chance.uniform(-1, 1) for _ in range(chance.randint(0, 30))]
        for name, estimator in ESTIMATORS.items():
            for rewards, values in zip(groups, estimator.of_role(groups, past), strict=True):
                order = sorted(range(len(rewards)), key=rewards.__getitem__)
                ranked = [values[i] for i in order]
                assert ranked == sorted(ranked), name


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_lack_of_variance(bad: float) -> None:
    with pytest.raises(RunFailed, match="rewards are not finite"):
        has_variance([1.0, bad])
    for function in (grpo, dr_grpo, rloo):
        with pytest.raises(RunFailed, match="rewards are not finite"):
            function([bad, 1.0])
    for of_role in (batch_std, dr_mas):
        with pytest.raises(RunFailed, match="rewards are not finite"):
            of_role([[bad], [1.0]])


def test_the_loop_groups_without_torch() -> None:
    code = "import sys, selfplay.learner.estimators, selfplay.batches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
