"""From a configuration to a run: opens the ledger, builds every part, plays, and closes all of it.

Not here: the loop itself (`loop`), which names stand for which parts (`parts`), where settings come from
(`config`), the plan's text (`plan`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from selfplay import ahead, loop, origins, parts, samplers, saves
from selfplay.cluster.again import launched
from selfplay.config import Config, diff, from_run
from selfplay.control import Control
from selfplay.curriculum.given import tasks_of
from selfplay.errors import Held, NotFound, RunFailed, SelfplayError, UserError
from selfplay.evaluation import during
from selfplay.events import Event, Interrupt, Observer
from selfplay.games import AsksPolicy
from selfplay.learner.stored import policy_version
from selfplay.ledger import Ledger, Reader, check, files
from selfplay.mix import mixture
from selfplay.parts import waiting
from selfplay.plan import plan, refuse_hidden
from selfplay.policy import Opens
from selfplay.project import Project
from selfplay.rollout import Player
from selfplay.stages import Clock, Interrupted, Pools
from selfplay.types import record
from selfplay.waits import DECISION_SECONDS, TEST_RUNS
from selfplay.warmup import WarmUp

CHECKED_BYTES = 64 << 20
"""Ledgers up to this size are read whole at each launch, in two seconds; of larger ones the structure is checked."""
CHECKED = frozenset({"file", "references", "json", "ids", "turns", "steps", "saves"})
"""Checks that no setting and no plug-in can make fail: whoever fails them is damaged."""

__all__ = ["Outcome", "assemble", "execute", "plan", "settings_of"]


@record
class Outcome:
    """How a launch ended."""

    stop: Literal["done", "interrupted"]
    steps: int
    """Closed steps, in all."""


def execute(
    config: Config,
    *,
    project: Project,
    folder: Path,
    observe: Observer,
    interrupt: Interrupt,
    enough: Callable[[Reader], bool] | None = None,
) -> Outcome:
    """Play until the configured steps are closed; the same call again goes on where it stopped.

    `enough` is asked after each closed step; where it says so, the run ends there as if no more had been configured.

    Raises:
        UserError: the folder holds a run of other settings, or a setting cannot be honoured.
        Held: another process holds the run.
        NotReady, RunFailed: as the parts say.
    """
    fresh = not folder.exists()
    try:
        with _ledger(config, project=project, folder=folder) as ledger:
            how = "failed"
            try:
                _refuse_damage(folder)
                _refuse_loss(folder, ledger)
                config.write(folder)
                saves.tidy(ledger, folder)
                outcome = _finished(config, folder, ledger)
                if outcome is None:
                    played = partial(_execute, config, project, folder, ledger, observe, interrupt, enough)
                    outcome = launched(played, parts.wanted_of(config), tell=partial(_lost, ledger, observe))
                how = outcome.stop
                return outcome
            finally:
                ledger.end_launch(how)
    except SelfplayError as error:
        # note: what another process holds is its own, even if it was not there a moment ago.
        if fresh and not isinstance(error, Held):
            _forget(folder)
        raise


def _lost(ledger: Ledger, observe: Observer, text: str, *, code: str = "learner_lost") -> None:
    ledger.append_alarm(level="warning", code=code, message=text)
    observe(parts.lost(text))


def _finished(config: Config, folder: Path, ledger: Ledger) -> Outcome | None:
    """Done, where every step is closed and the weights after the last are saved: nothing has to be loaded for that."""
    steps = ledger.last_closed_step() + 1
    version = ledger.status().policy_version
    saved = any(save.policy_version == version and (folder / save.path).is_dir() for save in ledger.saves())
    whole = saved and not during.owed(ledger, evaluation_of(config), steps)
    return Outcome(stop="done", steps=steps) if steps and steps >= config.run.steps and whole else None


def _refuse_damage(folder: Path) -> None:
    """What is not as it was written is not gone on with: SQLite itself notices a damaged page only where it reads it.

    Raises:
        RunFailed: the ledger is damaged.
    """
    path = folder / files.NAME
    small = path.stat().st_size <= CHECKED_BYTES
    for checked in islice(check.checks(folder), None if small else 1):
        if checked.num_problems and checked.name in CHECKED:
            raise RunFailed(
                f"{path} is damaged ({checked.problems[0]})",
                hint=f"see all of it: selfplay check {folder.name}"
                f"\n      save what is whole: selfplay check {folder.name} --salvage {folder.name}-2",
            )


def _refuse_loss(folder: Path, ledger: Ledger) -> None:
    """A step is closed on the disk before its save is written: a whole save of a later step means that rows are lost.

    Raises:
        RunFailed: there is such a save.
    """
    last = ledger.last_closed_step()
    for save in saves.of_steps(folder):
        if saves.step_of(save) > last and policy_version(save) is not None:
            raise RunFailed(
                f"{folder / files.NAME} ends with step {last}, and {saves.FOLDER}/{save.name} was saved after it: "
                f"the ledger's newest rows are lost (copied without its -wal file, or that file is damaged)",
                hint=f"put the {files.NAME}-wal that belongs to it back; or play those steps again: "
                f"move {folder / saves.FOLDER / save.name} away, then type the command again",
            )


def _forget(folder: Path) -> None:
    """Remove a run that failed before it recorded anything, so that the mended command can take its name."""
    if not (folder / "ledger.db").exists():
        return
    with Ledger.read(folder) as ledger:
        if ledger.seeds():
            return
    shutil.rmtree(folder)


def _ledger(config: Config, *, project: Project, folder: Path) -> Ledger:
    """The run's ledger: made at the first launch, held and compared at every other."""
    try:
        recorded = Ledger.read(folder)
    except NotFound:
        if kept := files.remains(folder):
            raise files.lost(folder, kept) from None
        return Ledger.create(
            folder,
            config_digest=config.digest,
            config=config.values(),
            seed=config.run.seed,
            game=config.run.game,
        )
    with recorded:
        row = recorded.run_row()
    if row.config_digest != config.digest:
        raise _changed(config, row.config, folder=folder, project=project)
    return Ledger.open(folder)


def _changed(config: Config, recorded: Any, *, folder: Path, project: Project) -> UserError:
    lines = [f"  {d.key}  {d.old!r} -> {d.new!r}" for d in diff(from_run(folder, project=project, environ={}), config)]
    return UserError(
        f"run `{folder.name}` was started with other settings\n\n" + "\n".join(lines),
        hint=f"go on with its own: selfplay run {folder / 'config.toml'} --name {folder.name}"
        f"\n      or start another: add --name NAME"
        f"\n      or take its weights along: add --fork {folder.name} --name NAME",
    )


async def _execute(
    config: Config,
    project: Project,
    folder: Path,
    ledger: Ledger,
    observe: Observer,
    interrupt: Interrupt,
    enough: Callable[[Reader], bool] | None,
) -> Outcome:
    parts = assemble(config, project=project, folder=folder, ledger=ledger, observe=observe, interrupt=interrupt)
    control = Control(folder, ledger=ledger, config=config, project=project, interrupt=interrupt, observe=observe)

    def ended(settings: loop.Settings) -> loop.Settings:
        done = enough is not None and enough(ledger)
        return replace(settings, steps=ledger.last_closed_step() + 1) if done else settings

    def steer(settings: loop.Settings) -> loop.Settings:
        return ended(control.steer(settings))

    async with control.listening(), parts as run:
        try:
            # note: asked before as well, since a run that was killed after its last step only saves.
            steps = await loop.run(replace(run, steer=steer, settings=ended(run.settings)))
        except Interrupted:
            return Outcome(stop="interrupted", steps=ledger.last_closed_step() + 1)
        return Outcome(stop="done", steps=steps)


@asynccontextmanager
async def assemble(
    config: Config, *, project: Project, folder: Path, ledger: Ledger, observe: Observer, interrupt: Interrupt
) -> AsyncIterator[loop.Run]:
    """Every part of a run, built whole; closed in reverse order, whatever happens."""
    async with AsyncExitStack() as stack:
        torch_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        stack.callback(torch_thread.shutdown, wait=False, cancel_futures=True)
        players, estimator = parts.roles(config, project), parts.estimator(config)
        chooser = parts.chooser(config, players)
        refuse_hidden(config, players)
        await asyncio.to_thread(samplers.check, config)
        game, sandbox = await parts.game(config, project, players, observe=observe, stack=stack)
        observe(waiting("model", f"the model {config.policy.model}"))
        job = partial(parts.learner, config, players)
        model = await asyncio.get_running_loop().run_in_executor(torch_thread, job)
        stack.callback(model.close)
        note = partial(_note, observe)
        lost = partial(_lost, ledger, observe, code="engine_lost")
        policy = parts.policy(config, model, torch_thread, say=note, alarm=lost)
        stack.push_async_callback(policy.aclose)
        if isinstance(policy, Opens):
            observe(waiting("model", "engines on the cluster"))
            await policy.open()
        if isinstance(game, AsksPolicy):
            game.bind(policy, seed=config.run.seed)
        settings = settings_of(config, players)
        data = {
            "run": folder.name,
            "folder": str(folder),
            "game": config.run.game,
            "model": config.policy.model,
            "steps": config.run.steps,
            "done": ledger.last_closed_step() + 1,
            "warmup": config.warmup.steps,
            "sandbox": sandbox,
            "device": model.origin,
        }
        observe(Event(kind="launch", data=data))
        yield loop.Run(
            settings=settings,
            config_digest=config.digest,
            folder=folder,
            ledger=ledger,
            game=game,
            policy=policy,
            learner=model.trainer,
            curriculum=ahead.late(mixture(chooser, config), settings.staleness),
            estimator=estimator,
            pools=Pools(
                ledger=ledger,
                player=Player(policy=policy, config_digest=config.digest, seed=config.run.seed),
                observe=observe,
                interrupt=interrupt,
                clock=Clock(),
                rows=asyncio.Semaphore(settings.rows),
                workers=asyncio.Semaphore(settings.workers),
                retries=settings.retries,
                decision_seconds=DECISION_SECONDS + TEST_RUNS * config.sandbox.timeout_seconds,
            ),
            torch_thread=torch_thread,
            warm_cache=parts.warm_cache(config, model),
            origins=partial(origins.of, config, project, players),
        )


def _note(observe: Observer, text: str) -> None:
    observe(Event(kind="note", data={"text": text}))


def evaluation_of(config: Config) -> during.Plan:
    """How often the run is evaluated."""
    return during.Plan(every=config.eval.every, tasks=config.eval.tasks, attempts=config.eval.attempts)


def settings_of(config: Config, players: parts.Players) -> loop.Settings:
    """The loop's numbers."""
    looks = parts.worth(config).looks
    return loop.Settings(
        seed=config.run.seed,
        steps=config.run.steps,
        staleness=config.run.staleness,
        save_every=config.run.save_every,
        keep_saves=config.run.keep_saves,
        seeds_per_step=config.curriculum.seeds,
        proposals=config.play.proposals,
        attempts=config.play.attempts,
        hinted=config.play.attempts if "hinted" in looks else 0,
        looks=looks,
        min_groups=config.play.min_groups,
        max_refills=config.play.refills,
        novelty=config.rewards.novelty,
        kl=config.learner.kl,
        temperature=players.temperature,
        train_roles=players.trained(config.roles.train),
        warmup=WarmUp(
            steps=config.warmup.steps, examples=config.warmup.examples, check_every=config.warmup.check_every
        ),
        evaluation=evaluation_of(config),
        alarms=parts.watch(config),
        rows=samplers.in_flight(config),
        workers=config.sandbox.workers or os.cpu_count() or 1,
        retries=config.play.tries - 1,
        credit=parts.credit_of(config, players),
        given=tasks_of(parts.chooser(config, players)),
    )
