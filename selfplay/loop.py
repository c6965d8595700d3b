"""One run, top to bottom. Read this file first.

    seeds -choose-> proposals -mint-> tasks -play-> attempts -judge-> verdicts -grade-> groups -> batch -> update
      ^                                                                                            |
      +------------------------------------- the ledger <------------------------------------------+

Every line of `play_step` and `learn_step` makes records from records and appends them. Nothing is kept anywhere
else, so a run that was killed goes on where its ledger ends: each stage asks the ledger what is owed.

    who          makes                       waits for                    unblocked by
    sampler      trajectories                a place among `rows`         a finished reply
    verifier     verdicts, tasks             a place among `workers`      a finished test run
    learner      an update                   every verdict of the step    the last of them
    writer       committed rows              50 ms or a closing step      its own clock

A task is attempted as soon as it is committed, while others are still proposed. With the `local` policy, which shares
weights that are updated in place, sampler and learner share one torch thread and take turns; a policy with a copy of
the weights may play `run.staleness` steps ahead of the one that is learnt from (`ahead`). Steps are learnt from and
closed in their order. The ledger has a writer thread of its own. Every wait has a name and a deadline (`waits`).

Not here: printing, progress and metrics (readers of the ledger and of `Event`s), and any feature's
`if`: a feature is another object inside `Run`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from selfplay import ahead, choices, given, probe, resume, saves, warmup, watch
from selfplay.ahead import Ahead
from selfplay.alarms import Watch
from selfplay.batches import batch_of, cells_of, groups_of, stale
from selfplay.credit import by_turns, credited, teaching
from selfplay.curriculum import Curriculum
from selfplay.errors import RunFailed
from selfplay.evaluation import during
from selfplay.events import Event
from selfplay.flow import together
from selfplay.games import Cast, Game, Terms, abilities_of, likeness
from selfplay.learner import Learner
from selfplay.learner.estimators import Estimator
from selfplay.ledger import Ledger
from selfplay.measures import counts_of, shown
from selfplay.offers import NewTasks
from selfplay.policy import Policy, Rests
from selfplay.stages import Interrupted, Played, Pools, attempt, hinted, mutate, propose
from selfplay.types import Choice, Group, Seed, Update, Verdict, record
from selfplay.waits import LEARNING_SECONDS, TORCH_SECONDS

T = TypeVar("T")


@record
class Settings:
    """The numbers of a run; `config.py` says where each comes from and what it means."""

    seed: int
    steps: int
    staleness: int
    """Steps that are played ahead of the one that is learnt from."""
    save_every: int
    keep_saves: int
    seeds_per_step: int
    proposals: int
    attempts: int
    hinted: int
    """Attempts with a hint on each new task; 0 where the proposer's reward does not look at them."""
    looks: tuple[str, ...]
    """What the proposer's reward looks at beside the attempts."""
    min_groups: int
    max_refills: int
    novelty: float
    kl: float
    temperature: float
    train_roles: tuple[str, ...]
    warmup: warmup.WarmUp
    alarms: Watch
    evaluation: during.Plan
    rows: int
    workers: int
    retries: int = 2
    credit: Cast | None = None
    """Solvers whose replies are credited one by one; None: plays are credited as wholes."""
    given: str = ""
    """Where tasks come from that are recorded before the first step; empty: none are."""


def _as_built(settings: Settings) -> Settings:
    return settings


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
    estimator: Estimator
    pools: Pools
    torch_thread: Executor
    """The one thread on which tensors are touched."""
    warm_cache: Path | None
    origins: Callable[[], Mapping[str, str]] = dict
    """What it plays with beside its settings (`selfplay.origins`), asked once the game has its seeds."""
    steer: Callable[[Settings], Settings] = _as_built
    """The settings of the next step, from those of the last one."""

    @property
    def observe(self) -> Callable[[Event], None]:
        """Where events go."""
        return self.pools.observe

    async def on_torch(self, job: Callable[[], T], *, tokens: int = 0) -> T:
        """Run `job` on the torch thread; it may take longer, the more `tokens` it learns from."""
        with self.pools.waits.on("the torch thread", seconds=TORCH_SECONDS + LEARNING_SECONDS * tokens):
            return await asyncio.get_running_loop().run_in_executor(self.torch_thread, job)


async def run(run: Run) -> int:
    """Play and learn until `settings.steps` steps are closed; returns how many are.

    Raises:
        Interrupted: asked to stop; what is recorded is kept, the rest stays owed.
        SelfplayError: going on would be wrong, or the machine cannot.
    """
    ahead.refuse(run.settings.staleness, shares_weights=run.policy.capabilities.shares_weights)
    async with run.pools.waits.guarding(), Ahead[Step]() as played_ahead:
        seeds = await resume.seeds(run)
        await given.record(run, seeds)
        await resume.restore(run)
        await warmup.warm_up(run)
        await resume.pin_reference(run)
        await watch.agree(run, seeds)
        run.pools.clock.take()
        try:
            await during.evaluate(run, run.ledger.last_closed_step() + 1)
            await watch.check(run)
            while (step := run.ledger.last_closed_step() + 1) < run.settings.steps:
                played = await played_ahead.of(step, run.settings, play=partial(play_step, run, seeds))
                update = await learn_step(run, seeds, played)
                run = replace(run, settings=run.steer(run.settings))
                if (step + 1) % run.settings.save_every == 0 or step + 1 == run.settings.steps:
                    await saves.write(run, step=update.step)
                await during.evaluate(run, step + 1)
                await watch.check(run)
        except Interrupted:
            await saves.catch_up(run)
            raise
        await saves.catch_up(run)
    return run.ledger.last_closed_step() + 1


@dataclass(slots=True)
class Plays:
    """What a step has played so far, in submission order."""

    proposals: list[Played] = field(default_factory=list)
    children: list[Played] = field(default_factory=list)
    """Failed attempts of earlier steps, and the tasks that were made of them."""
    attempts: list[Played] = field(default_factory=list)
    helped: list[Played] = field(default_factory=list)
    """Attempts with a hint that only a reward looks at."""

    @property
    def learnt_from(self) -> list[Played]:
        """What may be in a group."""
        return [*self.proposals, *self.attempts]


@record
class Step:
    """A step that is played, and not closed."""

    number: int
    plays: Plays
    grades: Mapping[str, Verdict]
    groups: tuple[Group, ...]


async def play_step(run: Run, seeds: Sequence[Seed], step: int) -> Step:
    """Play one step: rounds of plays until enough of their groups teach."""
    plays, grades = Plays(), dict[str, Verdict]()
    groups: tuple[Group, ...] = ()
    # note: those below are closed when this one begins, so what it sees of the past does not depend on time.
    past = partial(run.ledger.past_rewards, step - run.settings.staleness)
    cells = cells_of(seeds, proposals=run.settings.proposals)
    for refill in range(1 + run.settings.max_refills):
        chosen = await choose(run, seeds, step, refill)
        if not chosen:
            break
        await play_round(run, plays, choices.subjects(chosen, seeds, run.ledger), choices.terms_of(chosen), step=step)
        grades = grade(run, plays)
        groups = groups_of(plays.learnt_from, grades, estimator=run.estimator, past=past, cells=cells)
        groups = teaching(groups, plays.attempts, run.settings.credit)
        if not (few := too_few(groups, run.settings)):
            break
        then = "refilling" if refill < run.settings.max_refills else "no update"
        run.observe(Event(kind="note", step=step, data={"text": f"step {step}: {few}; {then}"}))
    return Step(number=step, plays=plays, grades=grades, groups=groups)


def too_few(groups: Iterable[Group], settings: Settings) -> str:
    """Why `groups` are not enough for an update: of the roles that learn, or of all where none does; else empty."""
    learning = [group for group in groups if not settings.train_roles or group.role in settings.train_roles]
    found = sum(group.informative for group in learning)
    return "" if found >= settings.min_groups else f"{found} of {settings.min_groups} informative groups"


async def learn_step(run: Run, seeds: Sequence[Seed], played: Step) -> Update:
    """Learn from a step that is played, and close it."""
    step, plays, settings = played.number, played.plays.learnt_from, run.settings
    oldest = run.learner.policy_version - settings.staleness
    batch = batch_of(
        step,
        plays,
        played.groups,
        train_roles=settings.train_roles,
        temperature=settings.temperature,
        oldest=oldest,
    )
    few = too_few(played.groups, settings) if batch.samples else ""
    if few:
        batch = replace(batch, samples=())
    run.observe(Event(kind="stage", step=step, stage="update", data={"total": len(batch.samples)}))
    with run.pools.clock.doing("learning"):
        if isinstance(run.policy, Rests):
            await run.policy.rest()
        batch = await credited(run, batch, played.groups)
        tokens = sum(len(sample.token_ids) for sample in batch.samples)
        update = await run.on_torch(lambda: run.learner.update(batch), tokens=tokens)
        update = await probe.probed(run, seeds, replace(update, skipped=few) if few else update)
    close(run, played, update, stale=len(stale(plays, oldest=oldest)))
    return update


async def play_round(
    run: Run, plays: Plays, subjects: choices.Subjects, terms: Mapping[str, Terms], *, step: int
) -> None:
    """Propose and mint, make children, and attempt and judge each new task once it is committed; added to `plays`."""
    pools, game, given = run.pools, run.game, run.settings
    new = NewTasks(subjects.tasks, terms, attempted=plays.attempts, helped=plays.helped)

    async def make() -> list[Played]:
        try:
            proposed = await propose(
                pools, game, subjects.seeds, step=step, count=given.proposals, terms=terms, told=new.take
            )
            plays.proposals += proposed
            plays.children += (made := await mutate(pools, game, subjects.parents, step=step, told=new.take))
            return [*proposed, *made]
        finally:
            new.close()

    _, attempts, helped = await together(
        make(),
        attempt(pools, game, new.all, step=step, count=given.attempts, terms=new.terms),
        hinted(pools, game, new.proposed, step=step, count=given.hinted, terms=new.terms),
    )
    plays.attempts += new.in_order(attempts)
    plays.helped += helped


async def choose(run: Run, seeds: Sequence[Seed], step: int, refill: int) -> Sequence[Choice]:
    """The choices of this round: the recorded ones, else new ones, committed before they are played.

    None in a refill round: the step is closed with what there is.
    """
    n, recorded = run.settings.seeds_per_step, run.ledger.choices(step)
    if mine := choices.of_round(recorded, refill, n=n):
        return mine
    first, taken = len(recorded), {choice.subject_id for choice in recorded}
    asked = run.curriculum(run.ledger, seeds, n=n, step=step, seed=run.settings.seed, first=first, taken=taken)
    found = choices.unclaimed(asked, by=ahead.open_choices(run.ledger, step, staleness=run.settings.staleness))
    can = abilities_of(run.game.name, tools=run.game.proposer.tools is not None)
    choices.refuse_unplayable(found, can, game=run.game.name)
    fresh = choices.numbered(found, taken=taken, first=first, refill=refill, n=n)
    if not fresh and not refill and len(found) == len(asked):
        raise RunFailed(f"the curriculum chose nothing for step {step}", hint="look: selfplay inspect RUN")
    choices.subjects(fresh, seeds, run.ledger)
    choices.refuse_spent(fresh, run.ledger)
    await asyncio.wrap_future(run.ledger.append(*fresh))
    return fresh


def grade(run: Run, plays: Plays) -> dict[str, Verdict]:
    """What each proposal is worth: its task's first solver group decides, copies share it less the novelty term.

    A copy's reward falls by `novelty * (copies - 1) / P`, P being the proposals a seed. What else a reward looks at
    stands beside: how alike the step's proposals are, and attempts that saw a hint.
    """
    proposals, judged = plays.proposals, by_task(plays.attempts)
    minted = [(played.trajectory, played.verdict) for played in proposals]
    beside = likeness.beside(minted, by_task(plays.helped), looks=run.settings.looks)
    copies = Counter(played.task.id for played in proposals if played.task)
    grades = {}
    for played in proposals:
        solved = judged.get(played.task.id, []) if played.task else []
        verdict = run.game.grade(played.trajectory, played.verdict, solved, beside=beside[played.trajectory.id])
        if played.task and verdict.reward is not None and copies[played.task.id] > 1:
            loss = run.settings.novelty * (copies[played.task.id] - 1) / run.settings.proposals
            verdict = replace(verdict, reward=verdict.reward - loss, parts={**verdict.parts, "novelty": -loss})
        grades[played.trajectory.id] = verdict
    return grades


def by_task(attempts: Sequence[Played]) -> dict[str, list[Verdict]]:
    """Task -> the verdicts of the attempts on it, in order."""
    found: dict[str, list[Verdict]] = {}
    for played in attempts:
        found.setdefault(played.trajectory.subject_id, []).append(played.verdict)
    return found


def close(run: Run, played: Step, update: Update, *, stale: int) -> None:
    """Commit the step's groups, its update and its counts in one transaction, and say so."""
    step, plays, groups = played.number, played.plays, played.groups
    seconds = run.pools.clock.take()
    counts = {**counts_of(plays.learnt_from, groups, children=plays.children), "stale": stale}
    counts |= {} if run.settings.credit is None else {"by_turns": by_turns(groups)}
    run.ledger.append(*played.grades.values())
    run.ledger.close_step(step=step, groups=groups, update=update, stage_seconds=seconds, counts=counts)
    data = shown(counts, plays.learnt_from, played.grades, update=update, seconds=seconds)
    run.observe(Event(kind="step", step=step, data=data))
