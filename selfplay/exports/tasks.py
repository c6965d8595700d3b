"""A run's tasks as rows: in the columns of SWE-bench, or for `selfplay eval --on FILE`.

Not here: the rows themselves (`games.code.swebench`, `evaluation.tasks`), tasks as folders (`harbor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from selfplay.errors import UserError
from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple
from selfplay.games import MIXED
from selfplay.types import Task

if TYPE_CHECKING:
    from selfplay.games.code.swebench import Packed


def tasks_of(asked: Asked) -> list[Task]:
    """Every task that was minted, by step and id; those of held-out seeds and of the dev set only where asked for.

    Raises:
        UserError: the step asked for is neither closed nor open.
    """
    reader, last = asked.reader, asked.reader.open_step()
    if asked.step is not None and not 0 <= asked.step <= last:
        raise UserError(
            f"run `{asked.name}` has no step {asked.step}", hint=f"see how far it is: selfplay status {asked.name}"
        )
    # note: dev tasks are of step -1.
    steps = range(-1, last + 1) if asked.step is None else (asked.step,)
    return [task for step in steps for task in reader.tasks(step) if asked.held_out or task.split == "train"]


def bugs_of(asked: Asked, *, what: str) -> list[Task]:
    """Of `tasks_of` the bugs in code: in a run that mixes games, those of that game alone.

    Raises:
        UserError: the run has none; the step asked for is neither closed nor open.
    """
    game = asked.reader.run_row().game
    if "code" not in game.split(MIXED):
        raise UserError(
            f"run `{asked.name}` plays `{game}`, and {what} are bugs in code",
            hint=f"for evaluations: selfplay export {asked.name} --format tasks",
        )
    return [task for task in tasks_of(asked) if task.game == "code"]


def packed_of(asked: Asked) -> Mapping[str, Packed]:
    """Seed -> its source tree and what its tests need.

    Raises:
        NotFound, NotReady, UserError: a source cannot be had, or is not where it was.
    """
    from selfplay import parts
    from selfplay.cache import cache_folder
    from selfplay.config import from_run
    from selfplay.games.code.needs import wheels_of
    from selfplay.games.code.source import fetch
    from selfplay.games.code.swebench import Packed
    from selfplay.sandbox.environment import tool_versions
    from selfplay.sandbox.recipe import load_recipe

    config = from_run(asked.reader.folder, project=asked.project, environ={})
    tools = tool_versions(load_recipe(folder=parts.sandboxes(asked.project)).tools)
    made = datetime.fromtimestamp(asked.reader.run_row().at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sources, seeds = parts.sources_of(config, asked.project), asked.reader.seeds()
    found: dict[str, Packed] = {}
    for source in sources:
        repository = fetch(source, cache=cache_folder())
        wheels = wheels_of(repository, more=config.game.requirements, tools=tools)
        needed = sorted({*tools, *(f"{wheel.name}=={wheel.version}" for wheel in wheels)})
        packed = Packed(repository=repository, requirements=tuple(needed), created_at=made)
        # note: a folder alone may have moved, and its seeds tell where it was.
        mine = [seed.id for seed in seeds if len(sources) == 1 or seed.source.startswith(f"{source}:")]
        found |= dict.fromkeys(mine, packed)
    return found


def swebench_rows(asked: Asked, tasks: list[Task], packed: Mapping[str, Packed]) -> Iterator[dict[str, Any]]:
    """`games.code.swebench.rows`, repository by repository.

    Raises:
        UserError: the tree is not the one that the tasks were made in.
    """
    from selfplay.games.code.swebench import rows

    hint = "give the tree that the run was played on back its content, and type the command again"
    if lost := next((task for task in tasks if task.seed_id not in packed), None):
        source = next(seed.source for seed in asked.reader.seeds() if seed.id == lost.seed_id)
        raise UserError(f"of the run's repositories none is where `{source}` was", hint=hint)
    # note: by their places, since equal ones would be fetched as one object or as two.
    each = {one.repository.source: one for one in (packed[task.seed_id] for task in tasks)}
    for name, one in each.items():
        try:
            yield from rows([task for task in tasks if packed[task.seed_id].repository.source == name], packed=one)
        except (ValueError, FileNotFoundError) as error:
            raise UserError(f"the tasks of `{asked.name}` do not fit {name}: {error}", hint=hint) from error


def _swebench(asked: Asked, out: Out) -> Made:
    tasks, count = bugs_of(asked, what="SWE-bench rows"), 0
    for row in swebench_rows(asked, tasks, packed_of(asked)):
        out.line(row)
        count += 1
    return Made(count=count, left_out=len(tasks) - count)


def _tasks(asked: Asked, out: Out) -> Made:
    from selfplay.evaluation.grounds import config_of
    from selfplay.evaluation.tasks import digest_of, rows

    tasks = tasks_of(asked)
    config, own = config_of(asked.reader.folder, project=asked.project)
    digest = digest_of(config, asked.project)
    for row in rows(tasks, asked.reader.seeds(), config=config, config_digest=own, digest=digest):
        out.line(row)
    return Made(count=len(tasks))


SWEBENCH = Simple(about="tasks in the columns of SWE-bench", noun="task", shape="lines", takes=BOTH, writer=_swebench)
TASKS = Simple(about="tasks for `selfplay eval --on FILE`", noun="task", shape="lines", takes=BOTH, writer=_tasks)
