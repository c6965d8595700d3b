"""Shuffled rewards: groups keep them, and replies lose them."""

from __future__ import annotations

import pytest

from selfplay.learner.estimators import ESTIMATORS
from selfplay.study.shuffled import grpo


def test_a_group_keeps_its_advantages_in_another_order() -> None:
    groups = [[1.0, -1.0, -1.0, -1.0], [1.0, 0.5, 0.0, -1.0], [1.0, 1.0]]
    plain, mixed = ESTIMATORS["grpo"].of_role(groups, ()), grpo.of_role(groups, ())
    assert [sorted(group) for group in mixed] == [sorted(group) for group in plain]
    assert list(mixed[2]) == [0.0, 0.0]
    assert [list(group) for group in grpo.of_role(groups, ())] == [list(group) for group in mixed]


def test_over_many_groups_a_reward_says_nothing_about_an_advantage() -> None:
    # The member with the reward has an advantage of (1 - 1/4) / std(1, 0, 0, 0) = 1.5 under grpo. Shuffled, the mean
    # over 400 groups has a deviation of sqrt(3/4 * ...) < 0.05 about zero.
    first = 0.0
    for number in range(400):
        [group, _] = grpo.of_role([[1.0, 0.0, 0.0, 0.0], [float(number), 0.0]], ())
        first += group[0]
    assert abs(first / 400) < 0.2
    assert ESTIMATORS["grpo"].of_role([[1.0, 0.0, 0.0, 0.0]], ())[0][0] == pytest.approx(1.5, abs=1e-4)
