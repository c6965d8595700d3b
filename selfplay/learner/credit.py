"""Credit a turn: what each reply of a play earned, from how much likelier it made the known answer. Pure.

Information gain (IGPO, Wang et al., arXiv 2510.14967, section 3.2; code GuoqingWang1/IGPO, `core_algos.py`, its mode
`joint`). With p(t) the geometric mean of the policy's probabilities of the L tokens of the known answer a,

    p(t) = exp(1/L sum_j log pi(a_j | conversation before reply t + 1, a_<j)),      t = 0 .. T - 1

reply t of T earns r(t) = p(t) - p(t - 1) for t < T, its tool's answer included, and the last one the play's reward R.
All r of a group together are standardised (population deviation, + 1e-6), and the advantage of every token of reply t
is the sum of what it and the replies behind it earned:

    A(t) = sum_{k >= t} gamma^(k - t) (r(k) - mean) / (deviation + 1e-6),           gamma = 1

Turns differ where all outcomes of a group are equal, and are learnt from: advantages do not collapse, which is the
point. Other than there: gains of exactly 0 count in mean and deviation (the code takes them for no turn); plays that a
limit ended, which carry no loss, do not.

Not here: the probabilities (`selfplay.credit`), estimators of whole plays (`estimators`).

Example:
    >>> [[round(advantage, 3) for advantage in play] for play in turn_advantages([[0.5], []], [1.0, 0.0])]
    [[1.225, 1.225], [-1.225]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

EPSILON = 1e-6


def turn_advantages(
    gains: Sequence[Sequence[float]], outcomes: Sequence[float], *, gamma: float = 1.0
) -> tuple[tuple[float, ...], ...]:
    """Advantages of the replies of each play of one group.

    Args:
        gains: Of each play, what each reply but the last gained; none for a play of one reply.
        outcomes: The reward of each play.
        gamma: What the next reply's advantage counts for.
    """
    earned = [(*gained, outcome) for gained, outcome in zip(gains, outcomes, strict=True)]
    every = [value for play in earned for value in play]
    mean = math.fsum(every) / len(every)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in every) / len(every))
    found = []
    for play in earned:
        behind, mine = 0.0, []
        for value in reversed(play):
            behind = (value - mean) / (deviation + EPSILON) + gamma * behind
            mine.append(behind)
        found.append(tuple(reversed(mine)))
    return tuple(found)


def gains_of(logprobs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """What each reply but the last gained; `logprobs` are those of the answer's tokens before each reply, in nats."""
    likely = [math.exp(math.fsum(one) / len(one)) for one in logprobs]
    return tuple(after - before for before, after in pairwise(likely))
