"""What an evaluation plays: one proposal on each held-out seed, some attempts on each held-out task.

Not here: which seeds and tasks (`during`, `measure`), figures (`views.evaluation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from selfplay.events import Interrupt
from selfplay.games import Cast, Game, Minted
from selfplay.ledger.held_out import HeldOutPlay
from selfplay.pools import toolboxes
from selfplay.stages import Interrupted, Played, Pools, Stint, play_and_decide
from selfplay.types import Seed, Task, Trajectory, record

T = TypeVar("T")


@record
class HeldOut:
    """What is played on."""

    seeds: tuple[Seed, ...]
    """To propose on, once each."""
    tasks: tuple[Task, ...]
    """To solve."""
    others: tuple[Seed, ...] = ()
    """Seeds that tasks are of and nobody proposes on."""


def held_out_of(every: Sequence[Seed], tasks: Sequence[Task], *, count: int) -> HeldOut:
    """The first `count` of all held-out seeds to propose on, `tasks` to solve, and what other seeds those are of."""
    used = {task.seed_id for task in tasks}
    others = tuple(seed for seed in every[count:] if seed.id in used)
    return HeldOut(seeds=tuple(every[:count]), tasks=tuple(tasks), others=others)


async def play(
    pools: Pools, game: Game, on: HeldOut, *, step: int, attempts: int, proposers: Cast, solvers: Cast
) -> list[HeldOutPlay]:
    """Play and decide what `pools.ledger` does not hold yet; nothing that is proposed becomes a task.

    `step` is the number of closed steps that the weights have seen.

    Raises:
        Interrupted: asked to stop; what is recorded is kept.
        NotReady: the machine failed most decisions.
    """
    seeds = {seed.id: seed for seed in on.seeds}
    tasks = {task.id: task for task in on.tasks}

    async def mint(proposal: Trajectory) -> Minted:
        minted = await game.mint(proposal, seeds[proposal.subject_id])
        return Minted(verdict=replace(minted.verdict, task_id=None), task=None)

    async def judge(attempt: Trajectory) -> Minted:
        return Minted(verdict=await game.judge(attempt, tasks[attempt.subject_id]), task=None)

    proposing = Stint(
        step=step,
        stage="evaluate",
        verdict_stage="mint",
        who=lambda name: proposers.of(seeds[name]),
        views={seed.id: game.proposer_view(seed) for seed in on.seeds},
        count=1,
        decide=mint,
        tools=toolboxes(game, proposers, seeds),
        label="held-out propose",
    )
    solving = Stint(
        step=step,
        stage="evaluate",
        verdict_stage="judge",
        who=lambda name: solvers.of(tasks[name]),
        views={task.id: game.solver_view(task) for task in on.tasks},
        count=attempts,
        decide=judge,
        tools=toolboxes(game, solvers, tasks),
        label="held-out attempt",
    )
    proposed = await play_and_decide(pools, proposing)
    attempted = await play_and_decide(pools, solving)
    return [*(_play_of(played, solved=False) for played in proposed), *(_play_of(p, solved=True) for p in attempted)]


def _play_of(played: Played, *, solved: bool) -> HeldOutPlay:
    return HeldOutPlay(
        side="solver" if solved else "proposer",
        subject_id=played.trajectory.subject_id,
        index=played.trajectory.index,
        valid=played.verdict.valid if played.verdict.fault is None else None,
        passed=played.verdict.passed,
    )


async def unless_interrupted(job: Coroutine[Any, Any, T], interrupt: Interrupt) -> T:
    """The result of `job`, which is dropped as soon as the run is asked to stop.

    Raises:
        Interrupted: it was.
    """
    task = asyncio.ensure_future(job)
    try:
        while not task.done():
            if interrupt.level:
                raise Interrupted
            await asyncio.wait([task], timeout=0.1)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_order(tasks: Sequence[Task], seeds: Sequence[Seed]) -> tuple[Task, ...]:
    """`tasks` in the order of their seeds in `seeds`; a game gives them so, a ledger by id."""
    place = {seed.id: number for number, seed in enumerate(seeds)}
    return tuple(sorted(tasks, key=lambda task: (place.get(task.seed_id, len(place)), task.id)))
