"""Advantages whose rewards are another sibling's: an arm that learns from them learns from nothing.

`learner.estimator = "selfplay.study.shuffled:grpo"` gives each member of a group the reward of a member drawn at
random, so groups keep their rewards, means and variances, and no reply has anything to do with what it is worth. What
learns all the same, learns from something else than rewards: a control (as the random rewards of arXiv 2506.10947).

The draw is keyed by the group's rewards and its place in the step: nothing is remembered, a resumed or replayed step
shuffles the same way, and over groups every sibling's reward is as likely.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from selfplay.learner.estimators import ESTIMATORS, Estimator
from selfplay.types import draw


def _of_role(groups: Sequence[Sequence[float]], past: Sequence[float]) -> Sequence[Sequence[float]]:
    # note: of the rewards of all groups together, so that equal groups of two steps are shuffled in two ways.
    key = [list(map(float, group)) for group in groups]
    mixed = []
    for place, group in enumerate(groups):
        order = list(group)
        random.Random(draw("shuffled", key, place)).shuffle(order)
        mixed.append(order)
    return ESTIMATORS["grpo"].of_role(mixed, past)


grpo = Estimator(of_role=_of_role)
"""GRPO's advantages of shuffled rewards."""
