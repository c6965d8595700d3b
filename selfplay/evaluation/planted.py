"""Bugs that somebody named, proved in the sandbox as tasks of the code game, and kept as files of tasks.

A bug is a function of a repository and the text that it reads with the bug. It becomes a task where the checks and
controls of any proposal accept it: its tests pass on the clean code in every run, some of them fail with the bug, and
the clean code is accepted. What is not is left out, with the reason.

Not here: where the bugs come from (`making`, `external`), playing the tasks (`measure`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from pathlib import Path

from selfplay import parts
from selfplay.config import Config, load
from selfplay.config.settings import toml_value
from selfplay.errors import NotReady, UserError
from selfplay.evaluation import tasks as files
from selfplay.events import Observer
from selfplay.games.code.bugs import Problem
from selfplay.games.code.game import CodeGame
from selfplay.project import Project
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Seed, Task, record

PRESET = "quickstart"
"""Whose roles and limits the tasks are judged with."""
MAX_LINES = 60
"""Longest function of tasks from outside."""
AT_ONCE = 4


@record
class Plant:
    """One bug."""

    name: str
    """For people: the row's or the program's."""
    path: str
    qualname: str
    source: str
    """The function with the bug, as it would stand in the file."""


@record
class Proved:
    """What became of bugs."""

    tasks: tuple[Task, ...]
    seeds: tuple[Seed, ...]
    """Those that the tasks are of."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Bug's name -> why it is no task."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Bug's name -> how the machine failed at it; whether it is a task is not known."""


def config_of(source: str, *, project: Project, sandbox: str | None = None, max_lines: int = 15) -> Config:
    """Settings of tasks on `source`: the quickstart's, with every function held out that can be."""
    sets = {"game.source": source, "game.max_lines": max_lines, "warmup.steps": 0, "game.held_out": 0.9}
    sets |= {"sandbox.kind": sandbox} if sandbox else {}
    given = [f"{name}={toml_value(value)}" for name, value in sets.items()]
    return load(PRESET, project=project, sets=given, environ={})


@asynccontextmanager
async def opened(config: Config, *, project: Project, observe: Observer) -> AsyncIterator[CodeGame]:
    """The code game on the configured source, surveyed; closed with the context."""
    async with AsyncExitStack() as stack:
        players = parts.roles(config, project)
        game, _ = await parts.game(config, project, players, observe=observe, stack=stack)
        assert isinstance(game, CodeGame)
        await game.seeds()
        yield game


async def prove(game: CodeGame, plants: Sequence[Plant]) -> Proved:
    """The tasks of these bugs, in their order."""
    seeds = {(seed.payload["path"], seed.payload["qualname"]): seed for seed in await game.seeds()}
    room = asyncio.Semaphore(AT_ONCE)

    async def one(plant: Plant) -> tuple[Seed, Task] | SandboxInfraError | str:
        seed = seeds.get((plant.path, plant.qualname))
        if seed is None:
            return f"no passing test reaches `{plant.qualname}` of {plant.path}, or it is too long"
        async with room:
            try:
                made = await game.planted(seed, plant.source)
            except SandboxInfraError as error:
                return error
        return made.why if isinstance(made, Problem) else (seed, made)

    found = await asyncio.gather(*(one(plant) for plant in plants))
    kept: dict[str, tuple[Seed, Task]] = {}
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for plant, made in zip(plants, found, strict=True):
        if isinstance(made, SandboxInfraError):
            failed[plant.name] = str(made)
        elif isinstance(made, str):
            left_out[plant.name] = made
        elif made[1].id in kept:
            left_out[plant.name] = "it is the same as one before it"
        else:
            kept[made[1].id] = made
    used = {seed.id: seed for seed, _ in kept.values()}
    tasks = tuple(task for _, task in kept.values())
    return Proved(tasks=tasks, seeds=tuple(used.values()), left_out=left_out, failed=failed)


def write(path: Path, found: Proved, *, config: Config, project: Project) -> None:
    """The tasks as a file that `selfplay eval --on` reads.

    Raises:
        UserError: there is none.
        NotReady: it cannot be written.
    """
    if not found.tasks:
        why = next(iter(found.left_out.values()), "there was no bug")
        raise UserError(f"no task for {path.name}: {why}", hint="look at what was left out, and why")
    made = files.rows(
        found.tasks,
        found.seeds,
        config=config,
        config_digest=config.digest,
        digest=files.digest_of(config, project),
    )
    keep(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))


def keep(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        NotReady: it cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise NotReady(f"cannot write {path}: {error.strerror}", hint=f"look: ls -ld {path.parent}") from error
