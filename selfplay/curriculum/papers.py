"""What SSR and SSP play: new tasks everywhere, second-order bugs from failed repairs, short batches filled by replay.

What each paper left open has an option and says so. Not here: their rewards (`games.rewards`), the child of a failed
attempt itself (the game makes it from the attempt that the choice names), what a refill round is (`loop`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from selfplay.curriculum import pool
from selfplay.curriculum.history import Candidate, History, Seen, look
from selfplay.curriculum.needs import Needs
from selfplay.curriculum.options import listed, within
from selfplay.curriculum.presets import Pick, Uniform, believed, numbered, uniform
from selfplay.types import Choice, Seed, record

REFILLS = ("cleared", "full", "resample", "dummy")


@record
class Ssr:
    """Options of `ssr` (arXiv 2512.18552)."""

    strategies: str = "removal,history"
    """One of these is drawn for each choice; the paper does not state the weights. Empty: the game's only one."""
    second: float = 0.25
    """Share of choices for children of failed attempts; the paper does not state it."""
    window: int = 64
    """Closed steps that are looked at."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        within(self, second=(0.0, 1.0), window=(1, inf), patience=(1, inf))

    @property
    def asks(self) -> tuple[str, ...]:
        """Strategies that the game must have."""
        return listed(self.strategies)

    @property
    def needs(self) -> Needs:
        """All that the game must have."""
        less = {"modes": "second=0", "strategies": 'strategies=""'}
        return Needs(modes=("mutate",) if self.second else (), strategies=self.asks, less=less)


@record
class Ssp:
    """Options of `ssp` (arXiv 2510.18821, table 5)."""

    refill: str = "cleared"
    """How a refill round is filled: from the pool since its last clearing, from the full pool, anew, or not at all."""
    clear: int = 10
    """Steps between two clearings of the pool."""
    threshold: float = 1.0
    """Highest solve rate of a task that may be replayed; 1 takes every task."""
    window: int = 200
    """Closed steps that are looked at: the full pool holds no older tasks."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        if self.refill not in REFILLS:
            raise ValueError(f"option `refill` is {self.refill!r}, expected one of {', '.join(REFILLS)}")
        within(self, clear=(1, inf), threshold=(0.0, 1.0), window=(1, inf), patience=(1, inf))


SSR, SSP = Ssr(), Ssp()


def ssr(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Ssr = SSR,
) -> tuple[Choice, ...]:
    """New bugs by a strategy drawn for each, and children of failed repairs, at most one level deep.

    A child's choice names the parent task and, in its terms, the failed attempt that is laid over it.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    key = (seed, step, "choose", first)
    seen = look(history, seeds, step=step, staleness=staleness, window=options.window, patience=options.patience)
    wanted = pool.rounded(n * options.second, *key, "second")
    children = _children(history, seen, wanted, taken=taken, key=key)
    fresh = uniform(
        history,
        seeds,
        n=n - len(children),
        step=step,
        seed=seed,
        first=first,
        taken=taken,
        staleness=staleness,
        options=Uniform(patience=options.patience),
    )
    asked = tuple(replace(choice, terms=_strategy(options.asks, *key, choice.subject_id)) for choice in fresh)
    return (*asked, *numbered(children, step=step, first=first + len(asked)))


def ssp(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Ssp = SSP,
) -> tuple[Choice, ...]:
    """New tasks in the first round; refill rounds (something is `taken`) as `refill` says.

    Replayed tasks are drawn evenly from those minted since the last clearing. New tasks make up for an empty pool;
    with `dummy` a refill round is empty, which means that the step goes on with what it has.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    again: tuple[Pick, ...] = ()
    # note: in a mix of games `first` is above 0 in the first round too, but for the one that chooses first.
    if taken and options.refill == "dummy":
        return ()
    if taken and options.refill in ("cleared", "full"):
        since = step - step % options.clear if options.refill == "cleared" else 0
        seen = look(history, seeds, step=step, staleness=staleness, window=options.window, patience=options.patience)
        again = _again(seen, n, since=since, taken=taken, options=options, key=(seed, step, "choose", first))
    fresh = uniform(
        history,
        seeds,
        n=n - len(again),
        step=step,
        seed=seed,
        first=first,
        taken=taken,
        staleness=staleness,
        options=Uniform(patience=options.patience),
    )
    return (*fresh, *numbered(again, step=step, first=first + len(fresh)))


def _strategy(names: Sequence[str], *key: object) -> dict[str, str]:
    return {"strategy": names[int(pool.fraction(*key, "strategy") * len(names))]} if names else {}


def _children(
    history: History, seen: Seen, count: int, *, taken: Collection[str], key: tuple[object, ...]
) -> tuple[Pick, ...]:
    """`count` first-order tasks that somebody failed and that have no child yet."""
    parents = {one.task.parent_id for one in seen.candidates}
    able = {
        one.task.id: one
        for one in seen.candidates
        if one.task.parent_id is None
        and one.task.id not in parents
        and one.task.id not in taken
        and any(play.solved < play.decided for play in one.plain)
    }
    found = []
    for name in pool.pick([(name, 1.0) for name in sorted(able)], count, key=(*key, "parent")):
        failed = history.failed_attempts(name, before=seen.before)
        if failed:
            why = f"second order, one level deep: a failed attempt is laid over its task; {believed(able[name])}"
            terms = (("attempt", failed[0]), ("strategy", "second-order"))
            found.append(Pick(mode="mutate", subject_id=name, score=able[name].rate.mean, why=why, terms=terms))
    return tuple(found)


def _again(
    seen: Seen, count: int, *, since: int, taken: Collection[str], options: Ssp, key: tuple[object, ...]
) -> tuple[Pick, ...]:
    able = {
        one.task.id: one
        for one in seen.candidates
        if one.task.step >= since and one.task.id not in taken and _last_rate(one) <= options.threshold
    }
    picked = pool.pick([(name, 1.0) for name in sorted(able)], count, key=(*key, "again"))
    said = f"one of {len(able)} tasks in the pool since step {since} (refill: {options.refill})"
    return tuple(
        Pick(mode="replay", subject_id=name, score=1.0 / len(able), why=f"{said}; {believed(able[name])}")
        for name in picked
    )


def _last_rate(one: Candidate) -> float:
    return one.plain[-1].solved / one.plain[-1].decided if one.plain else 2.0
