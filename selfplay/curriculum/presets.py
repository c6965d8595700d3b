"""`uniform` and `frontier`: every task new and spread evenly, or half new and half replayed where learning is likely.

`frontier` asks for new tasks where they promise most to learn, and replays a known task where it promises more than the
new one whose place it takes, at most half of the time (Sampling for Learnability, arXiv 2408.15099: half of each batch
from the set, half fresh). Replays are drawn by rank of learnability with a bonus for what has waited (Prioritized Level
Replay, arXiv 2010.03934); failing tasks are kept apart. Its options cover `plr` and `probation` as well.

Not here: what other papers play (`papers`, `rungs`, `arms`), reading the past (`history`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from selfplay.curriculum import pool, where
from selfplay.curriculum.given import PROCEDURAL, least_chosen
from selfplay.curriculum.history import Candidate, History, Seen, look, module_of, refuse_standstill, train_of
from selfplay.curriculum.needs import Needs
from selfplay.curriculum.options import within
from selfplay.curriculum.pool import Ranked
from selfplay.curriculum.where import Place
from selfplay.types import Choice, Seed, draw, record


@record
class Uniform:
    """Options of `uniform`."""

    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        within(self, patience=(1, inf))


@record
class Frontier:
    """Options of `frontier`."""

    replay: float = 0.5
    """Share of the tasks played that are known ones (SFL: half); the largest with `only_better`."""
    anneal: bool = False
    """Scale that share by the share of train seeds that were proposed from (PLR)."""
    target: float = 0.5
    """The solve rate that is looked for."""
    temperature: float = 0.5
    """Of the draw by rank; PLR has 0.1, which nearly always takes the first."""
    staleness: float = 0.1
    """Share of the draw that goes by the steps a task has waited (PLR)."""
    explore: float = 0.1
    """Share of new tasks that is asked for where least was asked for: the floor under every seed and module."""
    max_replays: int = 2
    """Replays a task; 0: any number. Replay without an end costs SSP 4.3 points (arXiv 2510.18821, table 5)."""
    fade: float = 0.7
    """What a replay is thought to teach of what the play before it taught; 1: as much."""
    only_better: bool = True
    """Replay a task only where it is expected to teach more than the new one whose place it takes, doubts counted."""
    retire: float = 0.85
    """Expected solve rate above which a task is mastered."""
    give_up: int = 1
    """Plays that fail whole before a task is left alone; 0: never."""
    probation: float = 0.0
    """Share of the choices for tasks that were left alone, with a hint (SPADE, arXiv 2608.19197)."""
    rehearse: float = 0.0
    """Share of the choices for procedural tasks, one a train seed, made beforehand: what is known stays known."""
    rehearsed: int = 0
    """Train seeds of which such a task is made, drawn; 0: all."""
    cap: int = 0
    """Times that one seed is chosen within the window; 0: no cap."""
    window: int = 64
    """Closed steps that are looked at: a task that was last played earlier is forgotten."""
    half_life: float = 30.0
    """Movement of the policy, in updates, after which an attempt counts half."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        shares = dict.fromkeys(
            ("replay", "staleness", "explore", "probation", "rehearse", "retire", "fade"), (0.0, 1.0)
        )
        within(self, **shares, target=(0.01, 0.99), temperature=(0.01, inf), half_life=(1e-9, inf))
        within(
            self,
            **dict.fromkeys(("max_replays", "give_up", "cap", "rehearsed"), (0.0, inf)),
            window=(1, inf),
            patience=(1, inf),
        )

    @property
    def needs(self) -> Needs:
        """What the game must have beside new and known tasks."""
        return Needs(terms=("hint",) if self.probation else ())

    @property
    def beforehand(self) -> str:
        """Where the tasks come from that are there before the first step; empty where none need be."""
        if not self.rehearse:
            return ""
        return f"{PROCEDURAL}:{self.rehearsed}" if self.rehearsed else PROCEDURAL


UNIFORM, FRONTIER = Uniform(), Frontier()


def uniform(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Uniform = UNIFORM,
) -> tuple[Choice, ...]:
    """The `n` train seeds that were proposed from least often; ties by a draw keyed by (seed, step, subject).

    `taken` are subjects already chosen in this step; they come last. Fewer seeds than `n` gives fewer choices.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    train, before = train_of(seeds), max(0, step - staleness)
    since = max(0, before - options.patience)
    moved = history.movement(since=since, before=before)
    if len(moved) == options.patience and not any(moved.values()):
        tasks = history.known_tasks(since=since, before=before)
        refuse_standstill(moved, history.proposals(since=since, before=before), tasks, patience=options.patience)
    counts = history.played_seeds(before=before)
    ranked = sorted(train, key=lambda s: (s.id in taken, counts.get(s.id, 0), draw(seed, step, "choose", s.id)))
    return tuple(
        Choice(
            step=step,
            index=first + i,
            mode="propose",
            subject_id=s.id,
            score=1.0 / (1 + counts.get(s.id, 0)),
            why=f"proposed from {counts.get(s.id, 0)} times so far, the least of {len(train)} train seeds",
        )
        for i, s in enumerate(ranked[:n])
    )


def frontier(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Frontier = FRONTIER,
) -> tuple[Choice, ...]:
    """New tasks and known ones at the edge of what is solved; each choice says its numbers.

    With `only_better`, a known task takes the place of the new one that promises least, as long as its learnability,
    faded by its plays and by how likely it is broken, is above what that promises a rollout. Too few known tasks are
    made up for by new ones, too few seeds by known tasks; where both are few, there are fewer choices.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    o = options
    seen = look(
        history, seeds, step=step, staleness=staleness, window=o.window, half_life=o.half_life, patience=o.patience
    )
    key = (seed, step, "choose", first)
    known = pool.replayable(seen, taken=taken, max_replays=o.max_replays, retire=o.retire, give_up=o.give_up)
    shelf = pool.on_probation(seen, taken=taken, give_up=o.give_up)
    tried = shelf[: pool.rounded(n * o.probation, *key, "probation")]
    old = pool.rounded((n - len(tried)) * o.rehearse, *key, "rehearse")
    rehearsed = least_chosen(history, n=old, before=seen.before, taken=taken, key=(seed, step)) if old else ()
    known = tuple(one for one in known if one.task.id not in dict(rehearsed))
    left = n - len(tried) - len(rehearsed)
    found = where.places(seen, target=o.target, half_life=o.half_life, cap=o.cap, key=(*key, "seed"))
    # note: a seed that was chosen in this step already would only be played again where nothing else is left.
    open_ = [place for place in found if place.seed.id not in taken]
    doubts = {task: doubt for place in found for task, doubt in place.doubts.items()} if o.only_better else {}
    ranked = pool.ranked(known, target=o.target, fade=o.fade, doubts=doubts)
    new = pool.rounded(left * share_of_new(seen, o), *key, "new")
    if o.only_better:
        floor, best = where.fresh(open_, left, explore=o.explore if new else 0.0, key=(*key, "seed"))
        kept, better = pool.displaced(best, ranked, most=left - new)
        asked, ranked = (*floor, *kept), better if len(open_) >= left else ranked
    else:
        asked = _both(where.fresh(open_, min(left, new), explore=o.explore, key=(*key, "seed")))
    again = pool.drawn(ranked, left - len(asked), temperature=o.temperature, staleness=o.staleness, key=(*key, "task"))
    if len(asked) + len(again) < left:
        more = [place for place in open_ if place not in asked]
        asked = (*asked, *_both(where.fresh(more, left - len(asked) - len(again), explore=0.0, key=(*key, "more"))))
    if not asked and not again and not tried and not rehearsed:
        asked = _both(where.fresh(found, left, explore=o.explore, key=(*key, "seed")))
    chosen = (
        *(proposal(place, seen) for place in asked),
        *(replay(one, o.target) for one in again),
        *(retry(one) for one in tried),
        *(rehearsal(task, count) for task, count in rehearsed),
    )
    return numbered(chosen, step=step, first=first)


def _both(pair: tuple[tuple[Place, ...], tuple[Place, ...]]) -> tuple[Place, ...]:
    return (*pair[0], *pair[1])


@record
class Pick:
    """A choice before it has its place."""

    mode: str
    subject_id: str
    score: float
    why: str
    terms: tuple[tuple[str, str | int | float | bool], ...] = ()


def numbered(picks: Sequence[Pick], *, step: int, first: int) -> tuple[Choice, ...]:
    """The choices, in order."""
    return tuple(
        Choice(
            step=step,
            index=first + i,
            mode=one.mode,  # type: ignore[arg-type]
            subject_id=one.subject_id,
            score=one.score,
            why=one.why,
            terms=dict(one.terms),
        )
        for i, one in enumerate(picks)
    )


def rehearsal(task: str, count: int) -> Pick:
    """A procedural bug is played."""
    why = f"rehearsed: given beforehand, chosen {count} times so far"
    return Pick(mode="replay", subject_id=task, score=float(-count), why=why)


def share_of_new(seen: Seen, options: Frontier) -> float:
    """Share of the choices that propose, such that `replay` of the tasks played are known ones.

    A choice to propose gives T tasks at the mean, one to replay gives one: f T replay = (1 - f) (1 - replay).
    """
    share = options.replay
    if options.anneal:
        share *= sum(seen.counts.get(seed.id, 0) > 0 for seed in seen.train) / len(seen.train)
    return (1.0 - share) / ((1.0 - share) + share * seen.tasks_a_seed)


def proposal(place: Place, seen: Seen) -> Pick:
    """A new task is asked for."""
    past = seen.proposed.get(place.seed.id)
    lately = f", {past.valid} of {past.decided} proposals valid lately" if past is not None and past.decided else ""
    nearby = module_of(place.seed) or "all seeds"
    why = (
        f"proposed from {place.times} times so far{' (least of all)' if place.untouched else ''}{lately}; "
        f"expected: {place.valid:.2f} valid, {place.broken:.2f} of tasks broken, {place.solve:.2f} solved, "
        f"learnability {place.learnable:.3f} (with {nearby}), {place.worth:.3f} a rollout; "
        f"drawn as {place.drawn:.3f} among {len(seen.train)} train seeds"
    )
    return Pick(mode="propose", subject_id=place.seed.id, score=place.worth, why=why)


def replay(one: Ranked, target: float) -> Pick:
    """A known task is played again."""
    at = "" if target == 0.5 else f" around a solve rate of {target:g}"
    why = (
        f"learnability {one.score:.3f}{at} is rank {one.rank} of {one.of}: {believed(one.candidate)}; "
        f"last played {one.candidate.idle} steps ago, {one.candidate.replays} replays"
    )
    return Pick(mode="replay", subject_id=one.candidate.task.id, score=one.score, why=why)


def retry(one: Candidate) -> Pick:
    """A task that whole groups failed is tried with a hint."""
    decided = sum(play.decided for play in one.plain)
    tried = sum(play.hinted for play in one.task.plays)
    why = (
        f"on probation: none of {decided} attempts in {len(one.plain)} plays solved it; "
        f"tried with a hint {tried} times before, so that hard can be told from wrong"
    )
    return Pick(mode="replay", subject_id=one.task.id, score=one.rate.learnability(), why=why, terms=(("hint", True),))


def believed(one: Candidate) -> str:
    """What was measured and what is expected, in words."""
    decided, solved = (sum(getattr(play, name) for play in one.plain) for name in ("decided", "solved"))
    regret = "" if one.regret is None else f", {one.regret:+.2f} with a hint"
    where_ = f" in {one.cell}" if str(one.cell) else ""
    rate = f"{one.rate.mean:.2f} ± {one.rate.deviation:.2f} expected"
    return f"{solved} of {decided} attempts solved{where_}, {rate}{regret}"
