"""The stages of a step: ask the ledger what is owed, run only that, append each record as it lands.

`play_and_decide` is the one shape: every subject is played n times and each trajectory is decided
by the game; `mutate` has failed attempts decided once more, for their children. Plays and decisions
are two pools, so a test run never holds a place in the sampler. Records come back, and decisions are
committed, in submission order, whatever finished first. Subjects may come one by one: a new task is
attempted as soon as it is committed (`offers`), while others are still proposed.

Not here: which subjects (`loop`), how stages wait for one another (`flow`), grouping and learning (`batches`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from selfplay.choices import Parent
from selfplay.errors import NotReady
from selfplay.events import Event
from selfplay.flow import each, in_order
from selfplay.games import NO_TERMS, Game, Minted, ProposesAlone, Terms, undecided
from selfplay.games import cast as cast_of
from selfplay.ledger import Ledger
from selfplay.pools import Clock, Interrupted, OpenTools, Pools, play_place, toolboxes, unplayed
from selfplay.rollout import Play
from selfplay.types import Fault, Role, Seed, Stage, Task, Trajectory, Verdict, VerdictStage

__all__ = ["Clock", "Interrupted", "Pools"]

Decide = Callable[[Trajectory], Awaitable[Minted]]
"""A trajectory's verdict and, for a valid proposal or a child, its task."""
Told = Callable[["Played"], None]
"""Called with each play once what it decides is committed, in submission order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A trajectory and what was decided about it."""

    trajectory: Trajectory
    verdict: Verdict
    task: Task | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a stage is, for the screen."""

    total: int = 0
    """Begun so far: grows where subjects come one by one."""
    sampled: bool = True
    """Are its trajectories of this step? Tokens that were counted before are not counted again."""
    done: int = 0
    valid: int = 0
    solved: int = 0
    tokens: int = 0
    since: float = field(default_factory=time.monotonic)

    def after(self, played: Played) -> dict[str, float]:
        """Count one more; the data of a `tick` event."""
        self.done += 1
        self.valid += played.verdict.valid
        self.solved += bool(played.verdict.passed)
        self.tokens += played.trajectory.num_sampled if self.sampled else 0
        return {
            "done": self.done,
            "total": self.total,
            "valid": self.valid,
            "solved": self.solved,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / max(1e-9, time.monotonic() - self.since),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """One stage of one step: who plays on what, and how it is decided."""

    step: int
    stage: Stage
    verdict_stage: VerdictStage
    who: Callable[[str], Role]
    """Subject id -> who plays on it."""
    views: Mapping[str, Mapping[str, object]]
    """Subject id -> prompt variables, in submission order; where subjects come one by one, of those that came."""
    count: int
    """Trajectories a subject."""
    decide: Decide
    tools: OpenTools | None = None
    """Of a role with tools."""
    alone: Callable[[str, int], Mapping[str, Any] | None] = lambda subject, index: None
    """Subject id and index -> what is handed over without a model; None: a model plays."""
    label: str = ""
    """For the screen."""


async def propose(
    pools: Pools,
    game: Game,
    seeds: Sequence[Seed],
    *,
    step: int,
    count: int,
    terms: Mapping[str, Terms] = NO_TERMS,
    stage: Stage = "propose",
    told: Told | None = None,
) -> list[Played]:
    """`count` proposals on each seed, minted; only the stage `propose` makes tasks to be played.

    `terms` are what is asked beside each subject, by its id; `told` hears of each proposal once it is committed.
    """
    subjects, cast = {seed.id: seed for seed in seeds}, cast_of(game, "proposer")

    async def mint(proposal: Trajectory) -> Minted:
        minted = await game.mint(proposal, subjects[proposal.subject_id])
        return minted if stage == "propose" else Minted(verdict=replace(minted.verdict, task_id=None), task=None)

    def alone(subject: str, index: int) -> Mapping[str, Any] | None:
        if not isinstance(game, ProposesAlone):
            return None
        return game.handed_over(subjects[subject], step=step, index=index, terms=terms.get(subject, NO_TERMS))

    stint = Stint(
        step=step,
        stage=stage,
        verdict_stage="mint",
        who=lambda name: cast.of(subjects[name]),
        views={seed.id: game.proposer_view(seed, terms=terms.get(seed.id, NO_TERMS)) for seed in seeds},
        count=count,
        decide=mint,
        tools=toolboxes(game, cast, subjects),
        alone=alone,
        label="propose" if stage == "propose" else "dev propose",
    )
    return await play_and_decide(pools, stint, told=told)


async def attempt(
    pools: Pools,
    game: Game,
    tasks: Sequence[Task] | AsyncIterable[Task],
    *,
    step: int,
    count: int,
    terms: Mapping[str, Terms] = NO_TERMS,
    beside: Terms = NO_TERMS,
    stage: Stage = "attempt",
    label: str = "",
) -> list[Played]:
    """`count` attempts on each task, judged. A task that several proposals share is attempted once.

    Tasks may come one by one. `terms` are what is asked beside each of them, by its id, and `beside` what is asked of
    all; both are read when a task comes.
    """
    subjects: dict[str, Task] = {}
    views: dict[str, Mapping[str, object]] = {}
    cast = cast_of(game, "solver")

    async def coming() -> AsyncIterator[str]:
        async for task in each(tasks) if isinstance(tasks, Sequence) else tasks:
            subjects[task.id] = task
            views[task.id] = game.solver_view(task, terms={**terms.get(task.id, NO_TERMS), **beside})
            yield task.id

    async def judge(trajectory: Trajectory) -> Minted:
        return Minted(verdict=await game.judge(trajectory, subjects[trajectory.subject_id]), task=None)

    stint = Stint(
        step=step,
        stage=stage,
        verdict_stage="judge",
        who=lambda name: cast.of(subjects[name]),
        views=views,
        count=count,
        decide=judge,
        tools=toolboxes(game, cast, subjects),
        label=label or ("attempt" if stage == "attempt" else "dev attempt"),
    )
    return await play_and_decide(pools, stint, coming())


async def hinted(
    pools: Pools, game: Game, tasks: AsyncIterable[Task], *, step: int, count: int, terms: Mapping[str, Terms]
) -> list[Played]:
    """`count` attempts with a hint on each task, for rewards that ask what a hint is worth.

    Rows of stage `evaluate`: in no group, tally or posterior, and nothing learns from them.
    """
    if not count:
        return []
    told: Terms = {"hint": True}
    label = "attempt with a hint"
    return await attempt(
        pools, game, tasks, step=step, count=count, terms=terms, beside=told, stage="evaluate", label=label
    )


async def mutate(
    pools: Pools, game: Game, parents: Sequence[Parent], *, step: int, told: Told | None = None
) -> list[Played]:
    """A child of each failed attempt, where it is a task: nothing is sampled, the proposer is not paid for it."""
    if not parents:
        return []
    subjects = {parent.attempt.id: parent for parent in parents}
    verdicts = (verdict for name in subjects for verdict in pools.ledger.verdicts_of(name))
    known = {verdict.trajectory_id: verdict for verdict in verdicts if verdict.stage == "mint"}

    async def decide(attempt: Trajectory) -> Minted:
        return await game.mutate(subjects[attempt.id].task, attempt, step=step)

    async def attempts() -> AsyncIterator[Callable[[], Awaitable[Trajectory]]]:
        for parent in parents:
            yield partial(_recorded, parent.attempt)

    stint = Stint(
        step=step,
        stage="attempt",
        verdict_stage="mint",
        who=lambda name: game.solver,
        views={},
        count=0,
        decide=decide,
        label="mutate",
    )
    return await _decide_each(pools, stint, attempts(), total=len(parents), known=known, told=told)


async def _recorded(trajectory: Trajectory) -> Trajectory:
    """One that was played before."""
    return trajectory


async def play_and_decide(
    pools: Pools, stint: Stint, subjects: AsyncIterable[str] | None = None, *, told: Told | None = None
) -> list[Played]:
    """Every place of `stint`, played and decided, in submission order: of `subjects` as they come, or of its views.

    Raises:
        Interrupted: the run is to stop; everything recorded so far is kept.
        NotReady: the machine failed most decisions, so none of those failures was recorded.
    """
    ledger = pools.ledger
    verdicts = ledger.verdicts(stint.step, stint.stage, stint.verdict_stage)
    faulty = ledger.trajectories(stint.step, stint.stage, faulty=True)
    tried = Counter((t.subject_id, t.index) for t in faulty)
    # note: a place that was given up has a verdict on its last try, which is a fault.
    trajectories = {(t.subject_id, t.index): t for t in faulty if t.id in verdicts}
    trajectories |= {(t.subject_id, t.index): t for t in ledger.trajectories(stint.step, stint.stage)}

    async def one(place: tuple[str, int]) -> Trajectory:
        return trajectories.get(place) or await _play(pools, stint, place, attempt=tried[place])

    async def places() -> AsyncIterator[Callable[[], Awaitable[Trajectory]]]:
        async for subject in subjects if subjects is not None else each(stint.views):
            for index in range(stint.count):
                yield partial(one, (subject, index))

    total = None if subjects is not None else len(stint.views) * stint.count
    return await _decide_each(pools, stint, places(), total=total, known=verdicts, told=told)


async def _decide_each(
    pools: Pools,
    stint: Stint,
    plays: AsyncIterable[Callable[[], Awaitable[Trajectory]]],
    *,
    total: int | None,
    known: Mapping[str, Verdict],
    told: Told | None,
) -> list[Played]:
    """Each trajectory with what was decided about it, in order; `known` are the recorded verdicts."""
    ledger = pools.ledger
    progress = Progress(sampled=stint.count > 0)
    data = {"total": total, "waits_for": "replies and their verdicts" if progress.sampled else "verdicts"}

    async def jobs() -> AsyncIterator[Callable[[], Awaitable[Played]]]:
        async for play in plays:
            if not progress.total:
                pools.observe(Event(kind="stage", step=stint.step, stage=stint.label, data=data))
            progress.total += 1
            yield partial(one, play)

    async def one(play: Callable[[], Awaitable[Trajectory]]) -> Played:
        trajectory = await play()
        recorded = known.get(trajectory.id)
        if recorded is not None:
            task = ledger.task(recorded.task_id) if recorded.task_id else None
            played = Played(trajectory=trajectory, verdict=recorded, task=task)
        else:
            played = await _decide(pools, stint, trajectory)
        pools.observe(Event(kind="tick", step=stint.step, stage=stint.label, data=progress.after(played)))
        return played

    return await in_order(jobs(), _committer(pools, stint, known=known, told=told), pools.interrupt)


async def _play(pools: Pools, stint: Stint, place: tuple[str, int], *, attempt: int) -> Trajectory:
    subject, index = place
    role, step = stint.who(subject), stint.step
    play = Play(role=role, stage=stint.stage, step=step, subject_id=subject, index=index, attempt=attempt)
    if (product := stint.alone(subject, index)) is not None:
        return unplayed(pools, play, product)
    return await play_place(pools, play, stint.views[subject], open_tools=stint.tools)


async def _decide(pools: Pools, stint: Stint, trajectory: Trajectory) -> Played:
    """Decide, again after a fault; the last verdict stands, a fault's without a reward.

    What no other decision can change is appended here; tasks and faults wait for their turn. A play that ended in a
    fault was tried again before, and nobody decides about it.
    """
    if trajectory.fault is not None:
        why = f"the play was not finished: {trajectory.fault.message}"
        verdict = undecided(trajectory, trajectory.fault, stage=stint.verdict_stage, why=why)
        return Played(trajectory=trajectory, verdict=verdict)
    async with pools.workers:
        for attempt in range(1 + pools.retries):
            if pools.interrupt.level:
                raise Interrupted
            began = time.monotonic()
            what = f"a decision about the stage `{stint.label}`"
            with pools.clock.doing("verification"), pools.waits.on(what, seconds=pools.decision_seconds):
                minted = await stint.decide(trajectory)
            minted = replace(minted, verdict=replace(minted.verdict, seconds=time.monotonic() - began))
            if minted.verdict.fault is None:
                if minted.task is None:
                    pools.ledger.append(minted.verdict)
                break
            pools.ledger.append_fault(minted.verdict.fault, trajectory_id=trajectory.id, attempt=attempt)
    return Played(trajectory=trajectory, verdict=minted.verdict, task=minted.task)


def _committer(
    pools: Pools, stint: Stint, *, known: Mapping[str, Verdict], told: Told | None
) -> Callable[[Played | None], list[Played]]:
    """Commits tasks in submission order; failures of the machine only once it is clear that most were not."""
    held: list[Played] = []
    fresh: dict[str, Task] = {}
    decided = 0

    def commit(played: Played | None) -> list[Played]:
        nonlocal decided
        if played is None:
            if len(held) > max(2, decided):
                raise _machine_failed(held)
            for late in held:
                pools.ledger.append(late.verdict)
            return []
        if played.verdict.fault is not None and played.trajectory.id not in known:
            held.append(played)
            return [played]
        decided += 1
        if played.task is not None and played.trajectory.id not in known:
            played = _settle(pools.ledger, stint, played, fresh)
        if told is not None:
            told(played)
        return [played]

    return commit


def _settle(ledger: Ledger, stint: Stint, played: Played, fresh: dict[str, Task]) -> Played:
    """Append a minted task and its verdict; a copy shares the task of its step, or is refused if that is older."""
    task, verdict = played.task, played.verdict
    assert task is not None
    earlier = fresh.get(task.id) or ledger.task(task.id)
    if earlier is None:
        ledger.append(task, verdict)
        fresh[task.id] = task
        return played
    if earlier.step == stint.step:
        fresh[task.id] = earlier
        ledger.append(verdict)
        return replace(played, task=earlier)
    verdict = replace(
        verdict,
        valid=False,
        task_id=None,
        reason="duplicate",
        why=f"the same task was minted in step {earlier.step}",
        evidence={**verdict.evidence, "copy_of": earlier.id},
    )
    ledger.append(verdict)
    return replace(played, verdict=verdict, task=None)


def _machine_failed(held: Sequence[Played]) -> NotReady:
    fault = held[0].verdict.fault or Fault(culprit="machine", where="verifier", message=held[0].verdict.why)
    return NotReady(
        f"{len(held)} decisions in a row ended in a fault of the {fault.culprit} ({fault.where}): {fault.message}",
        hint="see what is wrong: selfplay doctor; then type the same run command again, nothing recorded is lost",
    )
