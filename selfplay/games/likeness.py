"""What stands beside a proposal when it is paid: how many of its step are like it, and what a hint was worth.

R-Zero (arXiv 2508.05004, as in its code) clusters the questions of a batch by average linkage, up to a distance of 0.5,
the distance being 1 - BLEU, and subtracts from each the share of its cluster in the batch. Here the similarity is the
mean Dice coefficient of the word n-grams of orders 1 to 4: unlike BLEU it is symmetric, and needs no smoothing where a
text is shorter than four words. What is compared is the change where the game recorded one (normalised as for
duplicates), else the reply; proposals that became no task are in no cluster, and count in the batch.

Not here: copies, which share one task (`duplicates`), the rewards themselves (`rewards`).

Example:
    >>> shares({"a": "when was it built", "b": "when was it built ?", "c": "who wrote the book"}, of=4)
    {'a': 0.5, 'b': 0.5, 'c': 0.25}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from selfplay.games.duplicates import normalised
from selfplay.games.rewards import Beside
from selfplay.types import Trajectory, Verdict

LIMIT = 0.5
"""Clusters at least this far apart are not merged."""
ORDERS = 4
"""Longest n-gram, as in BLEU."""

_WORD = re.compile(r"\w+|[^\w\s]")


def beside(
    minted: Sequence[tuple[Trajectory, Verdict]], hinted: Mapping[str, Sequence[Verdict]], *, looks: Collection[str]
) -> dict[str, Beside]:
    """Proposal id -> what stands beside it, as far as the reward `looks` at it.

    `minted` are all proposals of the step with their mint verdicts, `hinted` the verdicts of attempts with a hint by
    task.
    """
    alike: dict[str, float] = {}
    # note: proposals of several games are of several roles, and are never compared.
    for role in dict.fromkeys(proposal.role for proposal, _ in minted) if "share" in looks else ():
        own = [(proposal, verdict) for proposal, verdict in minted if proposal.role == role]
        texts = {proposal.id: text_of(proposal, verdict) for proposal, verdict in own if verdict.task_id}
        alike |= shares(texts, of=len(own))
    return {
        proposal.id: Beside(share=alike.get(proposal.id, 0.0), hinted=_counted(hinted.get(verdict.task_id or "", ())))
        for proposal, verdict in minted
    }


def shares(texts: Mapping[str, str], *, of: int) -> dict[str, float]:
    """Name -> the size of its text's cluster, divided by `of`."""
    distinct = Counter(texts.values())
    grams = [_grams(text) for text in distinct]
    distance = [[1.0 - _similarity(one, other) for other in grams] for one in grams]
    found: dict[str, float] = {}
    sizes = list(distinct.values())
    for cluster in clusters(distance, sizes):
        share = sum(sizes[i] for i in cluster) / of
        found |= {text: share for i, text in enumerate(distinct) if i in cluster}
    return {name: found[text] for name, text in texts.items()}


def clusters(distance: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[set[int]]:
    """Average linkage of things that stand for `sizes` equal ones each; clusters at `LIMIT` or more stay apart."""
    members, weights = [{i} for i in range(len(sizes))], [float(size) for size in sizes]
    d: npt.NDArray[np.float64] = np.array(distance, dtype=np.float64).reshape(len(sizes), len(sizes))
    np.fill_diagonal(d, np.inf)
    while len(sizes) > 1:
        i, j = divmod(int(d.argmin()), len(sizes))
        if d[i, j] >= LIMIT:
            break
        d[i] = d[:, i] = (weights[i] * d[i] + weights[j] * d[j]) / (weights[i] + weights[j])
        d[i, i] = d[j] = d[:, j] = np.inf
        weights[i] += weights[j]
        members[i] |= members[j]
        members[j] = set()
    return [cluster for cluster in members if cluster]


def text_of(proposal: Trajectory, minted: Verdict) -> str:
    """What is compared of a proposal."""
    diff = minted.evidence.get("diff")
    return "\n".join(normalised(diff)) if isinstance(diff, str) else proposal.reply


def _grams(text: str) -> list[Counter[tuple[str, ...]]]:
    """The n-grams of a text with how often each is there, orders 1 to `ORDERS`."""
    words = _WORD.findall(text.casefold())
    return [Counter(zip(*(words[i:] for i in range(n)), strict=False)) for n in range(1, ORDERS + 1)]


def _similarity(one: Sequence[Counter[tuple[str, ...]]], other: Sequence[Counter[tuple[str, ...]]]) -> float:
    """Mean Dice coefficient, 0 to 1, over the orders that both texts have; 1 of two empty ones."""
    # note: orders come shortest first, so none is skipped between two that count.
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a and b]
    if not pairs:
        return float(one == other)
    return sum(2.0 * (a & b).total() / (a.total() + b.total()) for a, b in pairs) / len(pairs)


def _counted(verdicts: Sequence[Verdict]) -> tuple[int, int] | None:
    decided = [verdict.passed for verdict in verdicts if verdict.passed is not None]
    return (sum(decided), len(decided)) if verdicts else None
