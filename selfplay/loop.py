"""One run, top to bottom. Read this file first.

    seeds -choose-> proposals -mint-> tasks -play-> attempts -judge-> verdicts -grade-> groups -> batch -> update
      ^                                                                                            |
      +------------------------------------- the ledger <------------------------------------------+

Every line of `play_step` makes records from records and appends them. Nothing is kept anywhere else,
so a run that was killed goes on where its ledger ends: each stage asks the ledger what is owed.

    who          makes                       waits for                    unblocked by
    sampler      trajectories                a place among `rows`         a finished reply
    verifier     verdicts, tasks             a place among `workers`      a finished test run
    learner      an update                   every verdict of the step    the last of them
    writer       committed rows              50 ms or a closing step      its own clock

Sampler and learner share one torch thread; the ledger has a writer thread of its own. With the
`local` policy, which shares weights that are updated in place, only verification overlaps sampling.

Not here: printing, progress and metrics (readers of the ledger and of `Event`s), and any feature's
`if`: a feature is another object inside `Run`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from selfplay import resume, saves, warmup
from selfplay.batches import Advantages, batch_of, groups_of
from selfplay.curriculum import Curriculum
from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.games import Game
from selfplay.learner import Learner
from selfplay.ledger import Ledger
from selfplay.measures import counts_of, shown
from selfplay.policy import Policy
from selfplay.stages import Interrupted, Played, Pools, attempt, propose
from selfplay.types import Choice, Group, Seed, Task, Update, Verdict, record

T = TypeVar("T")


@record
class Settings:
    """The numbers of a run; `config.py` says where each comes from and what it means."""

    seed: int
    steps: int
    save_every: int
    keep_saves: int
    seeds_per_step: int
    proposals: int
    attempts: int
    min_groups: int
    max_refills: int
    novelty: float
    kl: float
    temperature: float
    train_roles: tuple[str, ...]
    warmup: warmup.WarmUp
    rows: int
    workers: int
    retries: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything a run is made of; built whole by `build.py`."""

    settings: Settings
    config_digest: str
    folder: Path
    ledger: Ledger
    game: Game
    policy: Policy
    learner: Learner
    curriculum: Curriculum
    advantages: Advantages
    pools: Pools
    torch_thread: Executor
    """The one thread on which tensors are touched."""
    warm_cache: Path | None

    @property
    def observe(self) -> Callable[[Event], None]:
        """Where events go."""
        return self.pools.observe

    async def on_torch(self, job: Callable[[], T]) -> T:
        """Run `job` on the torch thread."""
        return await asyncio.get_running_loop().run_in_executor(self.torch_thread, job)


async def run(run: Run) -> int:
    """Play and learn until `settings.steps` steps are closed; returns how many are.

    Raises:
        Interrupted: asked to stop; what is recorded is kept, the rest stays owed.
        SelfplayError: going on would be wrong, or the machine cannot.
    """
    seeds = await resume.seeds(run)
    await resume.restore(run)
    await warmup.warm_up(run)
    await resume.pin_reference(run)
    run.pools.clock.take()
    try:
        for step in range(run.ledger.last_closed_step() + 1, run.settings.steps):
            update = await play_step(run, seeds, step)
            if (step + 1) % run.settings.save_every == 0 or step + 1 == run.settings.steps:
                await saves.write(run, step=update.step)
    except Interrupted:
        await saves.catch_up(run)
        raise
    await saves.catch_up(run)
    return run.ledger.last_closed_step() + 1


async def play_step(run: Run, seeds: Sequence[Seed], step: int) -> Update:
    """One step: choose, propose, mint, attempt, judge, grade, learn, close."""
    proposals: list[Played] = []
    attempts: list[Played] = []
    grades: dict[str, Verdict] = {}
    groups: tuple[Group, ...] = ()
    for refill in range(1 + run.settings.max_refills):
        chosen = await choose(run, seeds, step, refill)
        subjects = [by_id(seeds, choice.subject_id) for choice in chosen]
        proposals += await propose(run.pools, run.game, subjects, step=step, count=run.settings.proposals)
        tasks = unattempted(proposals, attempts)
        attempts += await attempt(run.pools, run.game, tasks, step=step, count=run.settings.attempts)
        grades = grade(run, proposals, attempts)
        groups = groups_of([*proposals, *attempts], grades, advantages=run.advantages)
        if sum(group.informative for group in groups) >= run.settings.min_groups:
            break
        run.observe(Event(kind="note", step=step, data={"text": f"step {step}: too few informative groups, refilling"}))
    plays = [*proposals, *attempts]
    batch = batch_of(step, plays, groups, train_roles=run.settings.train_roles, temperature=run.settings.temperature)
    run.observe(Event(kind="stage", step=step, stage="update", data={"total": len(batch.samples)}))
    with run.pools.clock.doing("learning"):
        update = await run.on_torch(lambda: run.learner.update(batch))
    close(run, step, plays, grades, groups, update)
    return update


async def choose(run: Run, seeds: Sequence[Seed], step: int, refill: int) -> Sequence[Choice]:
    """The choices of this round: the recorded ones, else new ones, committed before they are played."""
    n = run.settings.seeds_per_step
    recorded = run.ledger.choices(step)
    if len(recorded) <= refill * n:
        taken = {choice.subject_id for choice in recorded}
        fresh = run.curriculum(
            run.ledger, seeds, n=n, step=step, seed=run.settings.seed, first=len(recorded), taken=taken
        )
        if not fresh:
            raise RunFailed(f"the curriculum chose nothing for step {step}", hint="look: selfplay inspect RUN")
        await asyncio.wrap_future(run.ledger.append(*fresh))
        recorded = (*recorded, *fresh)
    return recorded[refill * n : (refill + 1) * n]


def grade(run: Run, proposals: Sequence[Played], attempts: Sequence[Played]) -> dict[str, Verdict]:
    """What each proposal is worth: its task's first solver group decides, copies share it less the novelty term.

    A copy's reward falls by `novelty * (copies - 1) / P`, P being the proposals a seed.
    """
    judged: dict[str, list[Verdict]] = {}
    for played in attempts:
        judged.setdefault(played.trajectory.subject_id, []).append(played.verdict)
    copies = Counter(played.task.id for played in proposals if played.task)
    grades = {}
    for played in proposals:
        solved = judged.get(played.task.id, []) if played.task else []
        verdict = run.game.grade(played.trajectory, played.verdict, solved)
        if played.task and verdict.reward is not None and copies[played.task.id] > 1:
            loss = run.settings.novelty * (copies[played.task.id] - 1) / run.settings.proposals
            verdict = replace(verdict, reward=verdict.reward - loss, parts={**verdict.parts, "novelty": -loss})
        grades[played.trajectory.id] = verdict
    return grades


def unattempted(proposals: Sequence[Played], attempts: Sequence[Played]) -> list[Task]:
    """The tasks that were minted and not yet played, each once, in submission order."""
    played = {attempt.trajectory.subject_id for attempt in attempts}
    return list({p.task.id: p.task for p in proposals if p.task and p.task.id not in played}.values())


def close(
    run: Run, step: int, plays: Sequence[Played], grades: Mapping[str, Verdict], groups: Sequence[Group], update: Update
) -> None:
    """Commit the step's groups, its update and its counts in one transaction, and say so."""
    seconds = run.pools.clock.take()
    counts = counts_of(plays, groups)
    run.ledger.append(*grades.values())
    run.ledger.close_step(step=step, groups=groups, update=update, stage_seconds=seconds, counts=counts)
    run.observe(Event(kind="step", step=step, data=shown(counts, plays, grades, update=update, seconds=seconds)))


def by_id(seeds: Sequence[Seed], seed_id: str) -> Seed:
    """The seed of that id.

    Raises:
        RunFailed: the ledger chose a seed that the source no longer has.
    """
    for seed in seeds:
        if seed.id == seed_id:
            return seed
    raise RunFailed(
        f"the ledger chose seed {seed_id}, which its source no longer holds",
        hint="the source changed under the run; start another: selfplay run --new",
    )
