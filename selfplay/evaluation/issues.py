"""Issues in people's words, in the place of what tests lost: what a solver with tools is told in an evaluation.

A file has a JSON object a line, such as a row of SWE-bench: `problem_statement` (or `issue`) is the text, `task_id`, or
an `instance_id` that ends with the first 12 characters of it, says whose. Rows of other tasks are passed over.
Self-play writes no issues and is never to learn from one: a task with an issue has an id of its own, and is held out
whatever it was, so that a run refuses it.

Not here: the tasks (`tasks`), what a solver sees of an issue (`games.code.tree_game`, `roles/tree_repairer`).

Example:
    >>> where = told(ground, Path("issues.jsonl"), project=project)  # doctest: +SKIP
    >>> [task.payload["issue"] for task in where.on.tasks]  # doctest: +SKIP
    ['`groupby` loses the last group']
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfplay import parts
from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.evaluation.grounds import Ground
from selfplay.evaluation.rows import rows_of
from selfplay.evaluation.stints import HeldOut
from selfplay.project import Project
from selfplay.types import Task, digest, task_id

TEXTS, NAMES = ("problem_statement", "issue"), ("task_id", "instance_id")
"""Columns that hold the text, and whose it is; the first that is there counts."""
SHORT = 12
"""Characters of a task's id at the end of an `instance_id` (`games.code.swebench`)."""
_HINT = 'each line is a JSON object such as {"task_id": "...", "problem_statement": "..."}'


def told(ground: Ground, path: Path, *, configs: Sequence[Config] = (), project: Project) -> Ground:
    """`ground` with those of its tasks that `path` has an issue for, each with its issue; nobody proposes.

    `configs` are those of the runs that are evaluated, whose solvers may be others.

    Raises:
        NotFound, NotReady: there is no such file, or it cannot be read.
        UserError: a line is none, no issue is of these tasks, or a solver has no place for one.
    """
    for config in (ground.config, *configs):
        solver = parts.roles(config, project).solver
        if solver.tools is None or not re.search(r"\bissue\b", solver.prompt):
            raise UserError(
                f"role `{solver.name}` has no place for an issue",
                hint="issues are for solvers with tools, as of code-agent; put the variable `issue` into its prompt.md",
            )
    if ground.on is None:
        raise UserError(
            f"the held-out tasks of {ground.words} are not made yet, so no issue is theirs",
            hint="write them first: selfplay export RUN --format tasks --held-out --to FILE, then --on FILE",
        )
    texts = read(path)
    tasks = tuple(_with(task, text, ground.config_digest) for task in ground.on.tasks if (text := _of(task, texts)))
    if not tasks:
        of = f"one of the {len(ground.on.tasks)} tasks of {ground.words}"
        raise UserError(f"{path} has {len(texts)} issues, and none is of {of}", hint=_HINT)
    used = {task.seed_id for task in tasks}
    seeds = tuple(seed for seed in (*ground.on.seeds, *ground.on.others) if seed.id in used)
    words = f"{ground.words}, {len(tasks)} of {len(ground.on.tasks)} tasks by their issues in {path.name}"
    return replace(ground, words=words, on=HeldOut(seeds=(), tasks=tasks, others=seeds), count=len(tasks))


def read(path: Path) -> Mapping[str, str]:
    """Name, as the file has it -> issue.

    Raises:
        NotFound, NotReady: there is no such file, or it cannot be read.
        UserError: a line is none, or two of them are of one task.
    """
    found: dict[str, str] = {}
    for number, row in rows_of(path, hint=_HINT):
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number} is no JSON object", hint=_HINT)
        place = f"{path}, line {number}"
        name, text = (_first(row, columns) for columns in (NAMES, TEXTS))
        if not name or not text:
            lacks = " or ".join(NAMES if not name else TEXTS)
            raise UserError(f"{place} is no issue: it has no {lacks}", hint=_HINT)
        if found.setdefault(name, text) != text:
            raise UserError(f"{place}: {name} had another issue before", hint="keep one of them")
    return found


def _first(row: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    """The text of the first of `columns` that has one; empty where none has."""
    return next((row[name].strip() for name in columns if isinstance(row.get(name), str) and row[name].strip()), "")


def _of(task: Task, texts: Mapping[str, str]) -> str | None:
    if (whole := texts.get(task.id)) is not None:
        return whole
    return next((text for name, text in texts.items() if name.endswith(f"-{task.id[:SHORT]}")), None)


def _with(task: Task, text: str, config_digest: str) -> Task:
    """The task told by `text`: another task than the one that is played by its tests."""
    key = f"issue:{digest('issue', text)}:{task.key}"
    return replace(
        task,
        id=task_id(config_digest, game=task.game, key=key),
        key=key,
        payload={**task.payload, "issue": text},
        split="held_out",
    )
