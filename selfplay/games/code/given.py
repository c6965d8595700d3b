"""Tasks that no model proposed: procedural bugs, for the dev set and for examinations, in both forms of the game.

And proposals that no model made, for the strategy `procedural` of the form with tools: each hands over one mutation,
which passes or fails the checks of any other proposal. Nobody is paid for it.

Not here: the mutations (`mutate`), what makes a bug a task (`checks`, and each form's own).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfplay.games.code import checks
from selfplay.games.code.bugs import Bug, Problem
from selfplay.games.code.mutate import mutations
from selfplay.games.code.opened import Opened
from selfplay.types import Seed, Task, Verdict, draw

TRIED = 4
"""Mutations of a function that are tried before it is left alone."""
STRATEGY = "procedural"
MUTATION = "mutation"
"""What such a proposal hands over: the edit, as a model of the other form would write it."""
NONE, UNPAID = "no_mutation", "unpaid"
"""The function has no place for one. Nobody is paid for the task."""


def handed_over(seed: Seed, *, step: int, index: int) -> Mapping[str, Any]:
    """Proposal `index` of a step: the proposals of one step differ as long as the function has mutations for them."""
    offered = sorted(mutations(seed.payload["source"]), key=lambda m: draw(STRATEGY, seed.id, m.edit.text))
    if not offered:
        return {MUTATION: ""}
    return {MUTATION: offered[(draw(STRATEGY, seed.id, step) + index) % len(offered)].edit.text}


async def mutated(edit: str, seed: Seed, opened: Opened) -> Bug | Problem:
    """The bug of such a proposal, proved; else the first problem.

    Raises:
        SandboxInfraError: the machine failed.
    """
    if not edit:
        return Problem(reason=NONE, why=f"{seed.payload['qualname']} has no place for a mutation")
    return await checks.examine(edit, target=opened.target(seed.payload), grounds=opened.grounds)


def unpaid(graded: Verdict) -> Verdict:
    """The grade of such a proposal."""
    return replace(graded, reward=None, reason=UNPAID if graded.valid else graded.reason)


async def given(seed: Seed, opened: Opened, *, make: Callable[[Bug], Awaitable[Task | Problem]]) -> Task | None:
    """The task that `make` makes of the first mutation that is a bug and a task; None where the first few are not.

    Raises:
        SandboxInfraError: the machine failed.
    """
    target = opened.target(seed.payload)
    offered = sorted(mutations(seed.payload["source"]), key=lambda m: draw("dev", seed.id, m.edit.text))
    for mutation in offered[:TRIED]:
        found = await checks.examine(mutation.edit.text, target=target, grounds=opened.grounds)
        task = await make(found) if isinstance(found, Bug) else found
        if isinstance(task, Task):
            return task
    return None


async def held_out(
    offered: Sequence[Seed], count: int, *, make: Callable[[Seed], Awaitable[Task | None]]
) -> tuple[Sequence[Seed], Sequence[Task]]:
    """The first `count` of the held-out seeds, and a task in each of up to `count` of them that have one."""
    tasks: list[Task] = []
    at = 0
    while len(tasks) < count and at < len(offered):
        some = offered[at : at + count - len(tasks)]
        found = await asyncio.gather(*(make(seed) for seed in some))
        tasks += [task for task in found if task is not None]
        at += len(some)
    return offered[:count], tuple(tasks)
