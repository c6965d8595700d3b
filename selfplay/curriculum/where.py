"""Where new tasks are asked for: seeds weighed by what is untouched and by what was learnable nearby.

A share `explore` of the draws goes to the seeds that were proposed from least often, so that no seed and no module is
starved; the rest goes by how likely a proposal on the seed is to become a task, times how learnable its tasks are. Both
are estimated from the seed's own past and shrunk towards its module's, that towards its kind's, that towards all: SSR
(arXiv 2512.18552) names the missing choice of a bug's place as its own gap, from which duplicates come.

Not here: replay (`pool`), duplicates themselves (`duplicates`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from selfplay.curriculum.history import Seen, module_of
from selfplay.curriculum.pool import pick
from selfplay.types import Seed, record

SHRINKAGE = 2.0
"""How many tasks the wider neighbourhood counts for."""
SHARPNESS = 2.0
"""Power of a seed's expected worth in its chance."""
UNKNOWN = (0.5, 1.0 / 6.0)
"""Valid share and learnability where nothing was seen at all: E[p (1-p)] of a uniform prior."""


@record
class Place:
    """A seed, and why it is proposed from."""

    seed: Seed
    chance: float
    """Of the first draw."""
    times: int
    valid: float
    """Expected share of its proposals that become tasks."""
    learnable: float
    """Expected learnability of those."""
    untouched: bool
    """Chosen least often of all."""


def kind_of(seed: Seed) -> str:
    """`method` or `function` for code, the `kind` of the payload where it has one."""
    qualname = seed.payload.get("qualname")
    return str(seed.payload.get("kind") or ("" if qualname is None else "method" if "." in qualname else "function"))


def places(seen: Seen, *, explore: float, target: float, cap: int = 0) -> tuple[Place, ...]:
    """Every train seed with its chance; a seed chosen `cap` times within the window has none (0: no cap).

    Where the cap leaves no seed, it does not count.
    """
    least = min(seen.counts.get(seed.id, 0) for seed in seen.train)
    valid, learnable = _valid(seen), _learnable(seen, target)
    worth = {seed.id: (valid(seed) * learnable(seed)) ** SHARPNESS for seed in seen.train}
    fresh = {seed.id for seed in seen.train if seen.counts.get(seed.id, 0) == least}
    open_ = {seed.id for seed in seen.train if not cap or _lately(seen, seed) < cap} or set(worth)
    total = sum(worth[name] for name in open_) or 1.0
    untouched = len(fresh & open_)
    return tuple(
        Place(
            seed=seed,
            chance=(
                (explore / untouched if seed.id in fresh else 0.0)
                + (1.0 - explore * (untouched > 0)) * worth[seed.id] / total
                if seed.id in open_
                else 0.0
            ),
            times=seen.counts.get(seed.id, 0),
            valid=valid(seed),
            learnable=learnable(seed),
            untouched=seed.id in fresh,
        )
        for seed in seen.train
    )


def fresh(found: Sequence[Place], count: int, *, taken: Collection[str], key: tuple[object, ...]) -> tuple[Place, ...]:
    """`count` of the places without replacement; those already chosen in this step come last."""
    by_id = {place.seed.id: place for place in found}
    picked = pick([(name, place.chance) for name, place in by_id.items()], len(by_id), key=key)
    return tuple(by_id[name] for name in sorted(picked, key=lambda name: name in taken)[:count])


def _lately(seen: Seen, seed: Seed) -> int:
    return seen.proposed[seed.id].choices if seed.id in seen.proposed else 0


def _valid(seen: Seen) -> Callable[[Seed], float]:
    """Expected share of valid proposals."""
    counts = {
        seed.id: (float(one.valid), float(one.decided))
        for seed in seen.train
        if (one := seen.proposed.get(seed.id)) is not None and one.decided
    }
    return _shrunk(seen.train, counts, start=UNKNOWN[0])


def _learnable(seen: Seen, target: float) -> Callable[[Seed], float]:
    """Expected learnability of a task, by what is believed about those there are."""
    sums: dict[str, list[float]] = {}
    for one in seen.candidates:
        sums.setdefault(one.task.seed_id, []).append(one.rate.learnability(target))
    counts = {name: (sum(values), float(len(values))) for name, values in sums.items()}
    return _shrunk(seen.train, counts, start=UNKNOWN[1])


def _shrunk(
    seeds: Sequence[Seed], counts: Mapping[str, tuple[float, float]], *, start: float
) -> Callable[[Seed], float]:
    """Seed -> the mean of its counts (sum, number), shrunk level by level: all, its kind, its module, itself."""
    sums: dict[tuple[str, ...], tuple[float, float]] = {}
    for seed in seeds:
        total, number = counts.get(seed.id, (0.0, 0.0))
        for level in _levels(seed) if number else ():
            before = sums.get(level, (0.0, 0.0))
            sums[level] = (before[0] + total, before[1] + number)

    known: dict[tuple[str, ...], float] = {}

    def mean(seed: Seed) -> float:
        found = start
        for level in _levels(seed):
            if level not in known:
                total, number = sums.get(level, (0.0, 0.0))
                known[level] = (total + SHRINKAGE * found) / (number + SHRINKAGE)
            found = known[level]
        return found

    return mean


def _levels(seed: Seed) -> tuple[tuple[str, ...], ...]:
    # note: a level that a game does not have would count the level above it twice.
    kind, module = kind_of(seed), module_of(seed)
    between = (*(((kind,),) if kind else ()), *(((kind, module),) if module else ()))
    return (), *between, (kind, module, seed.id)
