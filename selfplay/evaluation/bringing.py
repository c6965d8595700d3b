"""What `selfplay eval --on` names, where it is no run and no file of one source: folders, and files that others made.

A file that others made is proved in the sandbox once; its tasks are kept in the cache by what they are made of. A
folder of files of tasks gives one ground a file.

Not here: layouts (`external`), the proof (`planted`), playing (`measure`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.evaluation import external, planted
from selfplay.evaluation.external import Brought
from selfplay.evaluation.grounds import Ground, on_file
from selfplay.evaluation.planted import Proved
from selfplay.evaluation.written import PROGRAM
from selfplay.events import Event, Observer
from selfplay.project import Project
from selfplay.types import digest, record

FOLDER = "external"


@record
class Found:
    """What is played on, and what is not."""

    grounds: tuple[Ground, ...]
    left_out: Mapping[str, str]
    """Name -> why."""


def is_brought(text: str) -> bool:
    """Is it a folder of tasks, or a file that others made?"""
    path = Path(text)
    if path.is_dir():
        return external.kind_of(path) != "" or any(path.glob("*.jsonl"))
    return path.is_file() and external.kind_of(path) != ""


def bring(path: Path, *, count: int | None, sandbox: str | None, project: Project, observe: Observer) -> Found:
    """The tasks that `path` names; at most `count` of each source.

    Raises:
        NotFound, NotReady, UserError: as `external.read`, `grounds.on_file` and the game; or no task is proved.
    """
    if path.is_dir() and not external.kind_of(path):
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise NotFound(f"{path} holds no file of tasks", hint="make some: selfplay study FILE.toml --make-tasks")
        made = [on_file(file, run=None, count=count, sandbox=sandbox, project=project) for file in files]
        return Found(grounds=tuple(made), left_out={})
    brought = external.read(path, cache=cache_folder())
    left_out = external.names(brought)
    grounds = []
    for one in brought:
        if not one.plants:
            continue
        config = planted.config_of(one.source, project=project, sandbox=sandbox, max_lines=planted.MAX_LINES)
        file = _file(one, config)
        if not file.is_file():
            text = f"{path.name}: proving {len(one.plants)} tasks of {Path(one.source).name}, once"
            observe(Event(kind="note", data={"text": text}))
            proved = asyncio.run(_proved(one, config, project, observe))
            left_out |= proved.left_out
            planted.write(file, proved, config=config, project=project)
        ground = on_file(file, run=None, count=count, sandbox=sandbox, project=project)
        grounds.append(replace(ground, words=str(path)))
    if not grounds:
        why = next(iter(left_out.values()), "it is empty")
        raise UserError(f"{path} gives no task: {why}", hint=external.HINT)
    return Found(grounds=tuple(grounds), left_out=left_out)


def _file(one: Brought, config: Config) -> Path:
    plants = [(plant.name, plant.path, plant.qualname, plant.source) for plant in one.plants]
    name = digest("brought", one.source, plants, sorted(one.prompts.items()), config.digest)
    return cache_folder() / FOLDER / f"{name}.jsonl"


async def _proved(one: Brought, config: Config, project: Project, observe: Observer) -> Proved:
    async with planted.opened(config, project=project, observe=observe) as game:
        found = await planted.prove(game, one.plants)
    if not one.prompts:
        return found
    prompts = {(plant.path, plant.qualname): one.prompts[plant.name] for plant in one.plants}
    tasks = tuple(
        replace(
            task,
            payload={**task.payload, PROGRAM: prompts[task.payload["path"], task.payload["qualname"]]},
        )
        for task in found.tasks
    )
    return replace(found, tasks=tasks)
