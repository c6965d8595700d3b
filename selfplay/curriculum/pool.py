"""Which known tasks are worth playing again, and how some of them are drawn.

A task leaves the pool when it was replayed often enough, when it is mastered, or when whole groups failed it; the last
kind stands on the probation shelf, where a hint may tell hard from wrong. What is left is ranked by learnability and
drawn by rank, with a bonus for what was not played for long: Prioritized Level Replay (arXiv 2010.03934) with the score
of Sampling for Learnability (arXiv 2408.15099).

Not here: the posterior (`posterior`), which seeds are proposed from (`where`), how many of each (`presets`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, log
from typing import Protocol, TypeVar

from selfplay.curriculum.history import Candidate, Seen
from selfplay.types import draw, record

W = TypeVar("W", bound="Worth")

CERTAIN: Mapping[str, float] = {}
"""No task is doubted."""


@record
class Ranked:
    """A candidate and its place."""

    candidate: Candidate
    rank: int
    """1 is the most learnable."""
    of: int
    score: float


def replayable(
    seen: Seen, *, taken: Collection[str], max_replays: int, retire: float, give_up: int
) -> tuple[Candidate, ...]:
    """Candidates that may be replayed.

    At most `max_replays` replays a task (0: any number); none whose expected solve rate is above `retire`; none that
    `give_up` plays failed whole and nothing solved (0: never), unless a hint showed that it can be solved.
    """
    return tuple(
        one
        for one in seen.candidates
        if one.task.id not in taken
        and (not max_replays or one.replays < max_replays)
        and one.rate.mean <= retire
        and (not hopeless(one, give_up) or (one.regret or 0.0) > 0.0)
    )


def hopeless(one: Candidate, give_up: int) -> bool:
    """Did at least `give_up` plays without a hint fail whole, and none solve it? Never where `give_up` is 0."""
    return 0 < give_up <= len(one.plain) and not any(play.solved for play in one.plain)


def on_probation(seen: Seen, *, taken: Collection[str], give_up: int) -> tuple[Candidate, ...]:
    """Tasks that `give_up` plays failed whole and that a hint was tried on fewer times, the oldest first.

    After as many failures with a hint the task counts as wrong and is never chosen again.
    """
    shelf = [
        one
        for one in seen.candidates
        if one.task.id not in taken
        and hopeless(one, give_up)
        and one.regret in (None, 0.0)
        and sum(play.hinted for play in one.task.plays) < give_up
    ]
    return tuple(sorted(shelf, key=lambda one: (-one.idle, one.task.id)))


def ranked(
    candidates: Sequence[Candidate], *, target: float, fade: float = 1.0, doubts: Mapping[str, float] = CERTAIN
) -> tuple[Ranked, ...]:
    """By learnability times `fade` for each earlier play, the highest first; ties by id.

    `doubts` are the chances that nobody can learn from a task, by task; they take their share of it.
    """
    worth = (
        (
            one.rate.learnability(target) * fade ** len(one.task.plays) * (1.0 - doubts.get(one.task.id, 0.0)),
            one,
        )
        for one in candidates
    )
    scored = sorted(worth, key=lambda pair: (-pair[0], pair[1].task.id))
    return tuple(
        Ranked(candidate=one, rank=i + 1, of=len(scored), score=score) for i, (score, one) in enumerate(scored)
    )


class Worth(Protocol):
    """Something new that could be played."""

    @property
    def worth(self) -> float:
        """What it is expected to teach, on the scale of learnability."""
        ...


def displaced(new: Sequence[W], known: Sequence[Ranked], *, most: int) -> tuple[tuple[W, ...], tuple[Ranked, ...]]:
    """(the new that stay, the known that are above all that went): the best known take the place of the least new.

    At most `most` go, and none for a known task that promises less. `known` is by rank.
    """
    least = sorted(new, key=lambda one: one.worth)
    gone = 0
    while gone < min(most, len(least), len(known)) and known[gone].score > least[gone].worth:
        gone += 1
    if not gone:
        return tuple(new), ()
    limit = least[gone - 1].worth
    out = {id(one) for one in least[:gone]}
    return tuple(one for one in new if id(one) not in out), tuple(one for one in known if one.score > limit)


def drawn(
    pool: Sequence[Ranked], count: int, *, temperature: float, staleness: float, key: tuple[object, ...]
) -> tuple[Ranked, ...]:
    """`count` of the pool without replacement, P = (1 - staleness) rank^(-1/temperature) / Z + staleness idle / Z'.

    Source: PLR, equations 1 to 4; there the temperature and the staleness weight are 0.1 both.
    """
    weights = [one.rank ** (-1.0 / temperature) for one in pool]
    idle = [float(one.candidate.idle) for one in pool]
    total, waited = sum(weights), sum(idle) or 1.0
    chances = [(1.0 - staleness) * w / total + staleness * i / waited for w, i in zip(weights, idle, strict=True)]
    picked = pick([(one.candidate.task.id, p) for one, p in zip(pool, chances, strict=True)], count, key=key)
    by_id = {one.candidate.task.id: one for one in pool}
    return tuple(by_id[name] for name in picked)


def pick(weights: Sequence[tuple[str, float]], count: int, *, key: tuple[object, ...]) -> tuple[str, ...]:
    """`count` names without replacement, each with a chance as its weight, drawn by (key, name): Gumbel's top k.

    Names of weight 0 come last. A name's draw is its own, so that another name coming or going changes nothing else.
    """
    keyed = [(log(weight) + gumbel(*key, name) if weight > 0.0 else -inf, name) for name, weight in weights]
    return tuple(name for _, name in sorted(keyed, key=lambda pair: (-pair[0], pair[1]))[:count])


def gumbel(*key: object) -> float:
    """A standard Gumbel number keyed by `key`."""
    return -log(-log(fraction(*key)))


def fraction(*key: object) -> float:
    """A number inside 0 to 1 keyed by `key`."""
    return (draw(*key) // 2048 + 0.5) / 2**52


def rounded(value: float, *key: object) -> int:
    """`value` rounded up or down at random, so that the mean over many keys is `value`."""
    whole = int(value)
    return whole + (fraction(*key) < value - whole)
