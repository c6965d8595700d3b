"""`selfplay eval`: weights or endpoints on a run's held-out tasks, or on a file of tasks.

The run that is evaluated may be held by another process: what is played goes into a small ledger of its own, under the
run's `evals/`, with the figures' plays beside it in `result.json`. The same question is answered from there; where it
was interrupted, it goes on.

Not here: which run or model a person means and what is printed (`cli.eval`), figures (`views.evaluation`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from selfplay import parts, samplers
from selfplay.cluster.again import until_lost
from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.evaluation import tasks as files
from selfplay.evaluation import written
from selfplay.evaluation.grounds import FOLDER, Ground, made_file
from selfplay.evaluation.stints import HeldOut, held_out_of, play
from selfplay.evaluation.targets import Target, config_of, identity, opened
from selfplay.events import Event, Interrupt, Observer
from selfplay.games import AsksPolicy, Game, kept_back
from selfplay.games.code.game import CodeGame
from selfplay.learner.heap import give_back
from selfplay.ledger import Ledger
from selfplay.ledger.held_out import HeldOutPlay
from selfplay.policy import Policy
from selfplay.project import Project
from selfplay.rollout import Player
from selfplay.stages import Clock, Pools
from selfplay.types import digest, record

RESULT = "result.json"


@record
class Ask:
    """How much is played, and how."""

    attempts: int
    """A task."""
    temperature: float | None
    """None: as the roles say."""
    seed: int | None
    """Keys every draw; None: the run's."""


@record
class Measured:
    """What one target did."""

    target: Target
    temperature: float
    seed: int
    plays: tuple[HeldOutPlay, ...]
    seconds: float
    """Wall clock of the plays when they were made, without loading."""
    stored: bool
    """Were they all there already?"""
    kept: Path | None
    """The folder that holds them."""


def measure(
    targets: Sequence[Target], ground: Ground, ask: Ask, *, project: Project, observe: Observer
) -> list[Measured]:
    """Let every target play `ground`, one after the other.

    Raises:
        UserError: a run's roles are of another game, or no held-out seed gives a task.
        NotFound, NotReady, RunFailed, Held: as the parts say.
    """
    try:
        return until_lost(lambda: _measure(targets, ground, ask, project, observe))
    finally:
        give_back()  # what a policy leaves in the heap would be kept for the next one, and grow with each.


def together(
    targets: Sequence[Target], grounds: Sequence[Ground], ask: Ask, *, project: Project, observe: Observer
) -> list[Measured]:
    """Let every target play every ground; what one did on all of them is one `Measured`.

    Raises:
        UserError, NotFound, NotReady, RunFailed, Held: as `measure`.
    """
    found = [measure(targets, ground, ask, project=project, observe=observe) for ground in grounds]
    return [
        replace(
            mine[0],
            plays=tuple(play for one in mine for play in one.plays),
            seconds=sum(one.seconds for one in mine),
            stored=all(one.stored for one in mine),
            kept=mine[0].kept if len(mine) == 1 else None,
        )
        for mine in zip(*found, strict=True)
    ]


async def _measure(
    targets: Sequence[Target], ground: Ground, ask: Ask, project: Project, observe: Observer
) -> list[Measured]:
    async with AsyncExitStack() as stack:
        bench = Bench(ground=ground, ask=ask, project=project, observe=observe, stack=stack)
        on = await bench.held_out()
        return [await _one(target, on, bench) for target in targets]


@dataclass(slots=True, kw_only=True)
class Bench:
    """What all targets share; the game is opened when it is first needed."""

    ground: Ground
    ask: Ask
    project: Project
    observe: Observer
    stack: AsyncExitStack
    _game: Game | None = field(default=None)

    async def game(self) -> Game:
        """The game, opened once."""
        if self._game is None:
            config = self.ground.config
            players = _players(config, self.ground, self.project)
            opening = parts.game(config, self.project, players, observe=self.observe, stack=self.stack)
            made, _ = await opening
            if self.ground.on is not None and written.is_written(self.ground.on.tasks):
                assert isinstance(made, CodeGame)
                made = written.Written(made)
            self._game = made
            if self.ground.seeded:
                await self._game.seeds()
        return self._game

    def say(self, text: str) -> None:
        """Tell it whoever looks on."""
        self.observe(Event(kind="note", data={"text": text}))

    async def held_out(self) -> HeldOut:
        """What is played on; tasks that are made here are kept for the next time."""
        ground = self.ground
        if ground.on is not None:
            return ground.on
        self.say("making held-out tasks, once; later evaluations find them")
        _, tasks = await (await self.game()).held_out(ground.count)
        if not tasks:
            raise UserError(
                f"no held-out seed of {ground.words} gives a task", hint="hold out more of them: -s game.held_out=0.3"
            )
        every = kept_back(await (await self.game()).seeds())
        if ground.folder is not None:
            config, of_files = ground.config, files.digest_of(ground.config, self.project)
            made = files.rows(tasks, every, config=config, config_digest=config.digest, digest=of_files)
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
            _write(made_file(ground.folder, ground.count), text)
        return held_out_of(every, tasks, count=ground.count)


async def _one(target: Target, on: HeldOut, bench: Bench) -> Measured:
    ground, ask = bench.ground, bench.ask
    config = config_of(target, otherwise=ground.config)
    players = _players(config, ground, bench.project)
    if players.game != ground.config.run.game:
        raise UserError(
            f"{target.words} plays `{players.game}`, and the tasks of {ground.words} are of `{ground.config.run.game}`",
            hint="evaluate it on tasks of its own game: --on RUN",
        )
    if ask.temperature is not None:
        players = players.at(ask.temperature)
    seed = ask.seed if ask.seed is not None else ground.config.run.seed
    with tempfile.TemporaryDirectory() as scratch:
        place = _place(target, on, bench, config=config, players=players, seed=seed)
        seconds, plays, stored = 0.0, None, False
        if place is not None and (found := _read(place)) is not None:
            seconds, plays, stored = *found, True
        if plays is None:
            folder = place if place is not None else Path(scratch) / "eval"
            seconds, plays = await _play(target, on, bench, config=config, players=players, seed=seed, folder=folder)
            if place is not None:
                _write(place / RESULT, json.dumps(_result(target, plays, seconds)) + "\n")
    return Measured(
        target=target,
        temperature=players.temperature,
        seed=seed,
        plays=plays,
        seconds=seconds,
        stored=stored,
        kept=place,
    )


def _players(config: Config, ground: Ground, project: Project) -> parts.Players:
    players = parts.roles(config, project)
    return players if ground.solver is None else replace(players, solver=ground.solver)


async def _play(
    target: Target, on: HeldOut, bench: Bench, *, config: Config, players: parts.Players, seed: int, folder: Path
) -> tuple[float, tuple[HeldOutPlay, ...]]:
    """Seconds, and what was played; the ledger in `folder` holds it, and what it held is not played again."""
    game = await bench.game()
    with _ledger(folder, bench.ground, seed) as ledger:
        how = "failed"
        try:
            async with AsyncExitStack() as stack:
                torch_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
                stack.callback(torch_thread.shutdown, wait=False, cancel_futures=True)
                policy = await opened(
                    target, config=config, players=players, torch_thread=torch_thread, stack=stack, say=bench.say
                )
                if isinstance(game, AsksPolicy):
                    game.bind(policy, seed=seed)
                ledger.append(*on.seeds, *on.others, *on.tasks)
                pools = _pools(ledger, policy, bench, config=config, seed=seed)
                bench.say(f"{target.words} on {bench.ground.words}")
                began = time.monotonic()
                found = await play(
                    pools,
                    game,
                    on,
                    step=target.step,
                    attempts=bench.ask.attempts,
                    proposers=players.cast("proposer"),
                    solvers=players.cast("solver"),
                )
                seconds = time.monotonic() - began
            how = "done"
            return seconds, tuple(found)
        finally:
            ledger.end_launch(how)


def _pools(ledger: Ledger, policy: Policy, bench: Bench, *, config: Config, seed: int) -> Pools:
    return Pools(
        ledger=ledger,
        player=Player(policy=policy, config_digest=bench.ground.config_digest, seed=seed),
        observe=bench.observe,
        interrupt=Interrupt(),
        clock=Clock(),
        rows=asyncio.Semaphore(samplers.in_flight(config)),
        workers=asyncio.Semaphore(config.sandbox.workers or os.cpu_count() or 1),
        retries=config.play.tries - 1,
    )


def _ledger(folder: Path, ground: Ground, seed: int) -> Ledger:
    """The small ledger in `folder`: made, or gone on with."""
    try:
        with Ledger.read(folder):
            pass
    except NotFound:
        config, game = ground.config, ground.config.run.game
        return Ledger.create(folder, config_digest=ground.config_digest, config=config.values(), seed=seed, game=game)
    return Ledger.open(folder)


def _place(
    target: Target, on: HeldOut, bench: Bench, *, config: Config, players: parts.Players, seed: int
) -> Path | None:
    """Where it is kept: under the target's run, else under the run it is evaluated on; None where there is no run.

    The name holds a digest of everything that the plays depend on. What an endpoint serves can change behind its
    address, so its plays are never taken for the answer to a later question.
    """
    run = target.folder or bench.ground.folder
    if run is None:
        return None
    weights = identity(target, config=config)
    # note: a run's own tasks cannot change; a file's can, under ids that stay.
    payloads = [[one.payload for one in (*on.seeds, *on.others)], [task.payload for task in on.tasks]]
    asked = (
        weights if weights is not None else [target.name, time.time_ns()],
        [one.id for one in on.seeds],
        [task.id for task in on.tasks],
        [asdict(replace(role, origin="")) for role in players.everybody],
        (bench.ask.attempts, seed, target.step),
        *(payloads if bench.ground.folder is None else []),
    )
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", target.words.rpartition("@")[2] if target.save else target.name).strip("_.")
    return run / FOLDER / f"{name[-40:]}_{digest('eval', *asked)[:12]}"


def _result(target: Target, plays: Sequence[HeldOutPlay], seconds: float) -> dict[str, object]:
    return {"target": target.words, "seconds": seconds, "plays": [asdict(play) for play in plays]}


def _read(place: Path) -> tuple[float, tuple[HeldOutPlay, ...]] | None:
    """(seconds, plays) that are kept in `place`; None where they are not whole."""
    try:
        row = json.loads((place / RESULT).read_text(encoding="utf-8"))
        return float(row["seconds"]), tuple(HeldOutPlay(**play) for play in row["plays"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
