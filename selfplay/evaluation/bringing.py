"""What `selfplay eval --on` names, where it is no run and no file of one source: folders, and files that others made.

A file that others made is proved in the sandbox once; its tasks, and why the others are none, are kept in the cache by
what they are made of. Where the machine failed at one, nothing of its source is kept. A source that gives no task is
skipped, and told, where there are others. A folder of files of tasks gives one ground a file.

Not here: layouts (`external`), the proof (`planted`), playing (`measure`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.errors import NotFound, NotReady, UserError
from selfplay.evaluation import external, planted
from selfplay.evaluation import tasks as task_files
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
        NotFound, NotReady, UserError: as `external.read`, `grounds.on_file` and the game; no task is proved, or the
            machine failed at one.
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
        file = _file(one, config, project)
        if (others := _others(file)) is None:
            text = f"{path.name}: proving {len(one.plants)} tasks of {Path(one.source).name}, once"
            observe(Event(kind="note", data={"text": text}))
            try:
                others = _prove(one, file, config, project, observe)
            except UserError as error:
                if len(brought) == 1:
                    raise
                others = {plant.name: error.message for plant in one.plants}
        left_out |= others
        if file.is_file():
            ground = on_file(file, run=None, count=count, sandbox=sandbox, project=project)
            grounds.append(replace(ground, words=str(path)))
    if not grounds:
        why = next(iter(left_out.values()), "it is empty")
        raise UserError(f"{path} gives no task: {why}", hint=external.HINT)
    return Found(grounds=tuple(grounds), left_out=left_out)


def _file(one: Brought, config: Config, project: Project) -> Path:
    """Where its tasks are kept, and beside them why the others are none; a source that changed has another file."""
    plants = [(plant.name, plant.path, plant.qualname, plant.source) for plant in one.plants]
    files = task_files.digest_of(config, project)
    name = digest("brought", one.source, files, plants, sorted(one.prompts.items()), config.digest)
    return cache_folder() / FOLDER / f"{name}.jsonl"


def _beside(file: Path) -> Path:
    return file.with_suffix(".left_out.json")


def _others(file: Path) -> dict[str, str] | None:
    """Name -> why it is no task, as it was when they were proved; None where they are still to be."""
    try:
        found = json.loads(_beside(file).read_text(encoding="utf-8"))
        return dict(found["left_out"]) if file.is_file() or not found["tasks"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _prove(one: Brought, file: Path, config: Config, project: Project, observe: Observer) -> dict[str, str]:
    """Name -> why it is no task; the others are in `file` then, which is not there where all are none.

    Raises:
        NotReady: the machine failed at one of them, or they cannot be kept.
        UserError: the source cannot be played.
    """
    proved = asyncio.run(_proved(one, config, project, observe))
    if proved.failed:
        name, said = next(iter(proved.failed.items()))
        raise NotReady(
            f"the machine failed at {len(proved.failed)} of {len(one.plants)} tasks of {Path(one.source).name} "
            f"({name}: {said}), and nothing of it was kept",
            hint="look what is wrong (selfplay doctor), and type the command again",
        )
    if proved.tasks:
        planted.write(file, proved, config=config, project=project)
    # note: the last one, since it says that they are all proved.
    left_out = dict(proved.left_out)
    planted.keep(_beside(file), json.dumps({"tasks": len(proved.tasks), "left_out": left_out}) + "\n")
    return left_out


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
