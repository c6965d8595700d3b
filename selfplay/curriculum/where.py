"""Where new tasks are asked for: what a seed promises is drawn from what is believed about it, and the best are taken.

Some tasks are broken: nobody can solve them, or a coin decides. They look like hard and like learnable ones; how likely
each is broken follows from what the other tasks of its seed and module lead one to expect. The others' first attempts
place them on a scale of log-odds. What the next task of a seed will be is estimated there: the seed's mean is shrunk
towards its module's, that towards its kind's, that towards all, each by how much those below it were seen to differ;
and old tasks are moved along by what the same seeds have become easier since. A seed's worth is the learnability of
such a task, times the chance that it is not broken, times the share of the rollouts that are attempts at tasks and not
proposals.

Each seed is given a mean drawn from its belief (posterior sampling, Thompson 1933): what is little known is tried, and
what is known to be too easy, too hard, broken or seldom valid is asked less. A share `explore` goes to modules of which
nothing was played for long, and otherwise to the seeds that were proposed from least often: nothing is starved. SSR
(arXiv 2512.18552) names the missing choice of a bug's place as its own gap, from which duplicates come.

Not here: replay (`pool`), duplicates themselves (`games.duplicates`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import comb, cos, exp, log, pi, sqrt
from typing import NamedTuple

from selfplay.curriculum.history import Seen, module_of
from selfplay.curriculum.pool import rounded
from selfplay.types import Seed, draw, record

SHRINKAGE = 4.0
"""How many proposals, or tasks, the wider neighbourhood counts for in the share of valid or broken ones."""
VALID, BROKEN = 0.5, 0.1
"""Those shares where nothing was seen at all."""
COIN = 0.5
"""Share of the broken tasks that a coin decides; the others fail always."""
SPREAD, TRUST = 2.0, 4.0
"""Variance of log-odds that each level adds, seed over its tasks too, and how many tasks that counts for."""
GAIN = 0.03
"""Deviation of what one unit of movement makes a seed easier, in log-odds, before anything was seen."""
BOLDNESS = 0.5
"""Deviations of the belief that one deviation of the draw is worth: what is learnt of a seed serves its module too."""
LOGISTIC = 2.89
"""Variance of the normal density that p (1-p) of a log-odds is close to: 1.7 squared."""
NODES = ((-2.857, 0.01126), (-1.356, 0.22208), (0.0, 0.53333), (1.356, 0.22208), (2.857, 0.01126))
"""Points and weights for the mean over a standard normal: Gauss and Hermite, five points."""

Path = tuple[tuple[str, ...], ...]
"""A seed's neighbourhoods, the widest first: all, its kind, its module, itself."""


class Level(NamedTuple):
    """What is believed of a mean: of a seed's tasks, of a module's seeds, of all."""

    mean: float
    variance: float


@record
class Place:
    """A seed, and why it is proposed from."""

    seed: Seed
    times: int
    """Choices to propose from it, in all."""
    valid: float
    """Expected share of its proposals that become tasks."""
    broken: float
    """Expected share of its tasks that nobody can learn from, however able."""
    doubts: Mapping[str, float]
    """Its tasks, by how likely each is such a one."""
    solve: float
    """Expected solve rate of its next task, if that is not broken."""
    learnable: float
    """Expected learnability of that, which counts broken ones as nothing."""
    share: float
    """Attempts among the rollouts that a proposal leads to: v G / (1 + v G) for G attempts a task."""
    drawn: float
    """Its worth with a mean drawn from what is believed."""
    untouched: bool
    """Chosen least often of all."""
    neglected: int
    """Steps since a task of its module was played, if that is a quarter of the window; 0 otherwise."""
    closed: bool
    """Chosen as often as the cap allows."""

    @property
    def worth(self) -> float:
        """Learnability a rollout."""
        return self.learnable * self.share


def kind_of(seed: Seed) -> str:
    """`method` or `function` for code, the `kind` of the payload where it has one."""
    qualname = seed.payload.get("qualname")
    return str(seed.payload.get("kind") or ("" if qualname is None else "method" if "." in qualname else "function"))


def places(seen: Seen, *, target: float, key: tuple[object, ...], half_life: float, cap: int = 0) -> tuple[Place, ...]:
    """Every train seed with what it promises; draws are keyed by (key, seed).

    A seed chosen `cap` times within the window is closed (0: no cap), unless all are.
    """
    paths = {seed.id: _levels(seed) for seed in seen.train}
    valid = _shares(
        paths, {name: (float(one.valid), float(one.decided)) for name, one in seen.proposed.items()}, start=VALID
    )
    first, believed, within, broken = _believed(seen, paths, half_life=half_life)
    attempts = _attempts(seen)
    least = min(seen.counts.get(name, 0) for name in paths)
    neglected = _neglected(seen, paths)
    closed = {name for name in paths if cap and name in seen.proposed and seen.proposed[name].choices >= cap}
    found = []
    for seed in seen.train:
        path = paths[seed.id]
        mean, variance = believed(path)
        tasks, right = valid(path) * attempts, 1.0 - broken(path)
        share = tasks / (1.0 + tasks)
        at = mean + BOLDNESS * sqrt(variance) * normal(*key, seed.id)
        found.append(
            Place(
                seed=seed,
                times=seen.counts.get(seed.id, 0),
                valid=valid(path),
                broken=1.0 - right,
                doubts={task.id: task.doubt for task in first.get(seed.id, ())},
                solve=1.0 / (1.0 + exp(-mean / sqrt(1.0 + (variance + within) / LOGISTIC))),
                learnable=right * learnability(mean, variance + within, target),
                share=share,
                drawn=right * share * learnability(at, within, target),
                untouched=seen.counts.get(seed.id, 0) == least,
                neglected=neglected.get(path[:-1], 0),
                closed=seed.id in closed and len(closed) < len(paths),
            )
        )
    return tuple(found)


def doubts(seen: Seen, *, half_life: float) -> Mapping[str, float]:
    """Tasks -> how likely each is broken, as `Place.doubts`."""
    first, *_ = _believed(seen, {seed.id: _levels(seed) for seed in seen.train}, half_life=half_life)
    return {task.id: task.doubt for tasks in first.values() for task in tasks}


def fresh(
    found: Sequence[Place], count: int, *, explore: float, key: tuple[object, ...]
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """`count` of the places: a share `explore` by least attention, and those whose drawn worth is highest.

    Closed ones come last.
    """

    def attention(place: Place) -> tuple[bool, int, int]:
        return place.closed, -place.neglected, place.times

    count = min(count, len(found))
    least = sorted(found, key=lambda place: (*attention(place), place.seed.id))
    few = rounded(count * explore, *key, "explore")
    if few:
        ties = [place for place in least if attention(place) <= attention(least[few - 1])]
        least = sorted(ties, key=lambda place: (*attention(place), draw(*key, "least", place.seed.id)))
    floor = tuple(least[:few])
    names = {place.seed.id for place in floor}
    best = sorted(found, key=lambda place: (place.closed, -place.drawn, place.seed.id))
    return floor, tuple(place for place in best if place.seed.id not in names)[: count - len(floor)]


def learnability(mean: float, variance: float, target: float = 0.5) -> float:
    """E[p (1-p)] of a solve rate whose log-odds are normal, around `target` where that is not one half.

    p (1-p) of log-odds x is close to the normal density of x with variance 1.7^2 (Birnbaum's constant), so that its
    expectation is the density with both variances; it is off by 0.016 at most, at x = 0.
    """
    off, both = mean - log(target / (1.0 - target)), variance + LOGISTIC
    return exp(-off * off / (2.0 * both)) / sqrt(2.0 * pi * both)


def normal(*key: object) -> float:
    """A standard normal number keyed by `key` (Box and Muller)."""
    one = draw(*key)
    radius, angle = (one >> 31) + 0.5, (one & 0x7FFFFFFF) + 0.5
    return sqrt(-2.0 * log(radius / 2**32)) * cos(2.0 * pi * angle / 2**31)


def _neglected(seen: Seen, paths: Mapping[str, Path]) -> Mapping[Path, int]:
    """Modules of which nothing was played for a quarter of the window -> steps since.

    Not those that were asked as often and gave nothing: that they give no tasks must not keep others from the floor.
    """
    long = max(1, seen.window // 4)
    played: dict[Path, int] = {}
    for one in seen.candidates:
        if one.task.seed_id in paths:
            module = paths[one.task.seed_id][:-1]
            played[module] = min(one.idle, played.get(module, one.idle))
    asked = Counter[Path]()
    for name, past in seen.proposed.items():
        if name in paths and paths[name][:-1] not in played:
            asked[paths[name][:-1]] += past.choices
    waited = dict.fromkeys((path[:-1] for path in paths.values()), seen.before) | played
    return {module: steps for module, steps in waited.items() if steps >= long > asked[module]}


def _attempts(seen: Seen) -> float:
    """Decided attempts a play."""
    plays = [play.decided for one in seen.candidates for play in one.plain]
    return sum(plays) / len(plays) if plays else 1.0


def _shares(
    paths: Mapping[str, Path], counts: Mapping[str, tuple[float, float]], *, start: float
) -> Callable[[Path], float]:
    """Levels of a seed -> the share of its counts (some, of all), shrunk level by level."""
    sums: dict[tuple[str, ...], tuple[float, float]] = {}
    for name, (some, number) in counts.items():
        for level in paths.get(name, ()) if number else ():
            before = sums.get(level, (0.0, 0.0))
            sums[level] = (before[0] + some, before[1] + number)
    known: dict[tuple[str, ...], float] = {}

    def share(path: Path) -> float:
        found = start
        for level in path:
            if level not in known:
                some, number = sums.get(level, (0.0, 0.0))
                known[level] = (some + SHRINKAGE * found) / (number + SHRINKAGE)
            found = known[level]
        return found

    return share


class _First(NamedTuple):
    """A task's first play."""

    id: str
    moved: float
    """How far the policy has moved since."""
    weight: float
    odds: float
    """Its log-odds, half an attempt added to either side."""
    decided: int
    solved: int
    doubt: float = 0.0
    """How likely the task is broken."""


_Firsts = Mapping[str, Sequence[_First]]
"""Seed id -> the first plays of its tasks."""


def _believed(
    seen: Seen, paths: Mapping[str, Path], *, half_life: float
) -> tuple[_Firsts, Callable[[Path], Level], float, Callable[[Path], float]]:
    """(first plays, a seed's mean log-odds now, the variance of its tasks around that, the share of them broken)."""
    found: dict[str, list[_First]] = {}
    for one in seen.candidates:
        if one.plain and one.task.seed_id in paths:
            play = one.plain[0]
            moved = seen.moved_since(play.step)
            odds = log((play.solved + 0.5) / (play.decided - play.solved + 0.5))
            task = _First(one.task.id, moved, 0.5 ** (moved / half_life), odds, play.decided, play.solved)
            found.setdefault(one.task.seed_id, []).append(task)
    first: _Firsts = found
    level, within = _fitted(first, paths)
    broken = _shares(paths, {}, start=BROKEN)
    for _ in range(2 if first else 0):
        first = {
            name: _doubted(tasks, level(paths[name]), within, broken(paths[name])) for name, tasks in first.items()
        }
        counts = {name: (sum(task.doubt for task in tasks), float(len(tasks))) for name, tasks in first.items()}
        broken = _shares(paths, counts, start=BROKEN)
        level, within = _fitted(first, paths)
    return first, level, within, broken


def _doubted(tasks: Sequence[_First], level: Level, within: float, broken: float) -> tuple[_First, ...]:
    """The tasks with how likely each is broken, by what is believed of its seed."""
    spread = level.variance + within
    doubts: dict[tuple[int, int], float] = {}
    for decided, solved in {(task.decided, task.solved) for task in tasks}:
        bad = broken * (COIN * comb(decided, solved) * 0.5**decided + (1.0 - COIN) * (not solved))
        doubts[decided, solved] = bad / (bad + (1.0 - broken) * _chance(decided, solved, level.mean, spread))
    return tuple(task._replace(doubt=doubts[task.decided, task.solved]) for task in tasks)


def _chance(decided: int, solved: int, mean: float, variance: float) -> float:
    """That so many attempts at a task succeed whose log-odds are about normal.

    Where some succeed and some fail it is the density at their log-odds, times the integral of the binomial chance. The
    density is Student's with four degrees of freedom: the first success among failures must not look like a coin's.
    """
    if solved in (0, decided):
        sign = 1.0 if solved == 0 else -1.0
        return sum(w * (1.0 + exp(sign * (mean + node * sqrt(variance)))) ** -decided for node, w in NODES)
    off = log(solved / (decided - solved)) - mean
    integral = decided / (solved * (decided - solved))
    density: float = 0.375 * (1.0 + off * off / (4.0 * variance)) ** -2.5 / sqrt(variance)
    return integral * density


def _fitted(first: _Firsts, paths: Mapping[str, Path]) -> tuple[Callable[[Path], Level], float]:
    """(levels of a seed -> what is believed of its mean log-odds now, the variance of its tasks around that)."""
    slope = _slope(first)
    sums: dict[tuple[str, ...], list[float]] = {}
    for name, tasks in first.items():
        now = [(task.weight * (1.0 - task.doubt), task.odds + slope * task.moved) for task in tasks]
        number = sum(1.0 - task.doubt for task in tasks)
        parts = (sum(w for w, _ in now), sum(w * z for w, z in now), sum(w * z * z for w, z in now), number)
        for level in paths[name]:
            at = sums.setdefault(level, [0.0, 0.0, 0.0, 0.0])
            for i, part in enumerate(parts):
                at[i] += part
    depth = max(len(path) for path in paths.values())
    spread = _spreads(sums, paths, depth)
    known: dict[tuple[str, ...], Level] = {}

    def believed(path: Path) -> Level:
        found = Level(0.0, 0.0)
        for i, level in enumerate(path):
            if level not in known:
                inner, between = spread[i + depth - len(path)]
                weight, total = sums[level][:2] if level in sums else (0.0, 0.0)
                pull = inner / between
                rest = pull / (weight + pull)
                mean = (total + pull * found.mean) / (weight + pull)
                known[level] = Level(mean, inner / (weight + pull) + rest * rest * found.variance)
            found = known[level]
        return found

    return believed, spread[-1][0]


def _slope(first: _Firsts) -> float:
    """What the same seed has become easier a unit of movement: regression within seeds, with `GAIN` as its prior."""
    cross = square = 0.0
    for tasks in first.values():
        if len(tasks) > 1:
            moved, odds = (sum(values) / len(tasks) for values in zip(*((t.moved, t.odds) for t in tasks), strict=True))
            cross -= sum((task.moved - moved) * (task.odds - odds) for task in tasks)
            square += sum((task.moved - moved) ** 2 for task in tasks)
    return cross / (square + 2.0 * SPREAD / GAIN**2)


def _spreads(
    sums: Mapping[tuple[str, ...], Sequence[float]], paths: Mapping[str, Path], depth: int
) -> list[tuple[float, float]]:
    """By level: (variance of a task around a mean of this level, variance of such means around the level above).

    The first is pooled over the level's means; what it falls from one level to the next lies between them. Each counts
    as if `TRUST` tasks had spread by `SPREAD` a level.
    """
    at: list[set[tuple[str, ...]]] = [set() for _ in range(depth)]
    for path in paths.values():
        for i, level in enumerate(path):
            at[i + depth - len(path)].add(level)
    inner = []
    for i, levels in enumerate(at):
        off = free = 0.0
        for weight, total, square, number in (sums[level] for level in sorted(levels & sums.keys())):
            # note: tasks that are surely broken, or older than a weight can say, tell nothing of their spread.
            if not weight:
                continue
            off += max(0.0, square - total * total / weight) * number / weight
            free += max(0.0, number - 1.0)
        start = SPREAD * (depth - i + 1)
        inner.append((off + TRUST * start) / (free + TRUST))
    between = [SPREAD, *(max(0.1 * SPREAD, above - below) for above, below in pairwise(inner))]
    return list(zip(inner, between, strict=True))


def _levels(seed: Seed) -> Path:
    # note: a level that a game does not have would count the level above it twice.
    kind, module = kind_of(seed), module_of(seed)
    between = (*(((kind,),) if kind else ()), *(((kind, module),) if module else ()))
    return (), *between, (kind, module, seed.id)
