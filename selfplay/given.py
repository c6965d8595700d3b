"""Tasks that a run is given before its first step: procedural ones, those of another run, or those of a file.

They are recorded as tasks of step -1, under ids of this run, and the curriculum `given` plays them. Tasks of seeds that
this run does not have, or holds back, are left out: nothing held out is ever trained on.

Not here: which of them is played when (`curriculum.given`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.curriculum.given import seeds_of
from selfplay.errors import UserError
from selfplay.evaluation import tasks as task_files
from selfplay.evaluation.stints import unless_interrupted
from selfplay.events import Event
from selfplay.games import MakesTasks
from selfplay.ledger import Ledger, files
from selfplay.types import Seed, Task, draw, task_id

if TYPE_CHECKING:
    from selfplay.loop import Run


async def record(run: Run, seeds: Sequence[Seed]) -> None:
    """Record the tasks that `run.settings.given` names, once; nothing where it names none.

    Raises:
        UserError: there is none, or none of a game that is played, or the game cannot make any.
        NotFound, NotReady: the run or the file is not there, or cannot be read.
        Interrupted: asked to stop.
    """
    named = run.settings.given
    if not named or any(task.split == "train" for task in run.ledger.tasks(-1)):
        return
    train = [seed for seed in seeds if seed.split == "train"]
    most = seeds_of(named)
    drawn = None if most is None else _drawn(train, most, seed=run.settings.seed)
    total = None if drawn is None else len(drawn)
    run.observe(Event(kind="stage", stage="given", data={"waits_for": f"given tasks: {named}", "total": total}))
    if drawn is not None:
        found = await unless_interrupted(_made(run, drawn), run.pools.interrupt)
    else:
        found = await asyncio.to_thread(_read, run.folder / Path(named).expanduser())
    known = {seed.id for seed in train}
    own = {one.id: one for task in found if task.seed_id in known for one in (_as_own(task, run),)}
    lacking = {seed.game for seed in train} - {task.game for task in own.values()}
    if lacking or not own:
        of = f" of game `{min(lacking)}`" if len({seed.game for seed in train}) > 1 else ""
        hint = "name a run or a file on the same source: -s 'curriculum.options={tasks=\"../RUN\"}'"
        raise UserError(f"`{named}` gives no task of a train seed{of} of this run", hint=hint)
    await asyncio.wrap_future(run.ledger.append(*own.values()))


def _drawn(train: Sequence[Seed], most: int, *, seed: int) -> list[Seed]:
    """At most `most` seeds of each game, in the order that they have."""
    ranked: dict[str, list[str]] = {}
    for one in sorted(train, key=lambda one: draw(seed, "given", one.id)):
        ranked.setdefault(one.game, []).append(one.id)
    kept = {one for of_game in ranked.values() for one in of_game[:most]}
    return [one for one in train if one.id in kept]


async def _made(run: Run, train: Sequence[Seed]) -> list[Task]:
    game = run.game
    if not isinstance(game, MakesTasks):
        raise UserError(
            f"the game `{game.name}` makes no tasks by itself", hint="name a run: curriculum.options={tasks='../RUN'}"
        )
    done = 0

    async def one(seed: Seed) -> Task | None:
        nonlocal done
        # note: all at once would wait for the same few sandboxes in turns, and end together.
        async with run.pools.workers:
            task = await game.given(seed)
        done += 1
        run.observe(Event(kind="tick", stage="given", data={"done": done, "total": len(train)}))
        return task

    found = await asyncio.gather(*(one(seed) for seed in train))
    return [task for task in found if task is not None]


def _read(path: Path) -> list[Task]:
    """The train tasks of the run in `path`, those that it was given first, or all tasks in the file."""
    if not (path / files.NAME).exists():
        return list(task_files.read(path).on.tasks)
    with Ledger.read(path) as reader:
        steps = range(-1, reader.last_closed_step() + 1)
        return [task for step in steps for task in reader.tasks(step) if task.split == "train"]


def _as_own(task: Task, run: Run) -> Task:
    """The task under an id of this run; who made it is not in this ledger."""
    name = task_id(run.config_digest, game=task.game, key=task.key)
    return replace(task, id=name, split="train", step=-1, parent_id=None)
