"""Evaluations inside a run: every `eval.every` steps the weights play held-out seeds and tasks, and nothing is learnt.

The plays are rows of stage `evaluate` whose step is the number of closed steps. Groups, batches, tallies and the
curriculum never see them. An interrupted evaluation goes on where it stopped, like any stage. The held-out tasks are
made once, at the first evaluation, and read from the ledger ever after.

Not here: figures (`views.evaluation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from selfplay.errors import UserError
from selfplay.evaluation.stints import HeldOut, in_order, play, unless_interrupted
from selfplay.events import Event
from selfplay.games import cast, kept_back
from selfplay.ledger import Reader, held_out
from selfplay.types import record
from selfplay.views.evaluation import line, recorded, summary, summary_data
from selfplay.views.words import plural

if TYPE_CHECKING:
    from selfplay.loop import Run
    from selfplay.stages import Clock


@record
class Plan:
    """How often a run is evaluated, and on how much."""

    every: int
    """Steps between two evaluations, the first before step 0; 0: none."""
    tasks: int
    """Held-out tasks, and held-out seeds to propose on."""
    attempts: int
    """Attempts a task."""

    def due(self, done: int) -> bool:
        """Is there an evaluation after `done` closed steps?"""
        return self.every > 0 and done % self.every == 0


async def evaluate(run: Run, done: int) -> None:
    """Where it is due, play what the evaluation after `done` closed steps still owes, and say how it went.

    Raises:
        Interrupted: asked to stop; the rest stays owed.
        UserError: no seed is held out.
        NotReady: the machine failed.
    """
    plan = run.settings.evaluation
    if not plan.due(done) or _recorded(run.ledger, plan, done):
        return
    with _apart(run.pools.clock):
        plays = await play(
            run.pools,
            run.game,
            await _held_out(run, plan),
            step=done,
            attempts=plan.attempts,
            proposers=cast(run.game, "proposer"),
            solvers=cast(run.game, "solver"),
        )
    found = summary(plays, ks=sorted({1, plan.attempts}))
    text = f"held-out after {plural(done, 'step')}: {line(found)}"
    run.observe(Event(kind="note", step=done, data={"text": text, "evaluation": summary_data(found)}))


def owed(ledger: Reader, plan: Plan, done: int) -> bool:
    """Has the run still to play the evaluation after `done` closed steps?"""
    return plan.due(done) and not _recorded(ledger, plan, done)


def _recorded(ledger: Reader, plan: Plan, done: int) -> bool:
    return recorded(ledger, done, tasks=plan.tasks, attempts=plan.attempts) is not None


async def _held_out(run: Run, plan: Plan) -> HeldOut:
    """The run's held-out seeds and tasks: recorded ones, else made and recorded in one piece."""
    seeds = kept_back(run.ledger.seeds())
    if not seeds:
        raise UserError(
            f"eval.every is {plan.every}, and no seed is held out to evaluate on",
            hint="hold some out: -s game.held_out=0.3; or do not evaluate: -s eval.every=0",
        )
    tasks = run.ledger.ask(held_out.tasks)
    if not tasks:
        words = "held-out tasks: made once, and kept"
        run.observe(Event(kind="stage", stage="held-out", data={"waits_for": words, "total": None}))
        _, made = await unless_interrupted(run.game.held_out(plan.tasks), run.pools.interrupt)
        tasks = tuple(made)
        await asyncio.wrap_future(run.ledger.append(*tasks))
    return HeldOut(seeds=seeds[: plan.tasks], tasks=in_order(tasks, seeds))


@contextmanager
def _apart(clock: Clock) -> Iterator[None]:
    """Count the time inside as `evaluation`, so that a step's own rates are not touched."""
    before = clock.take()
    try:
        yield
    finally:
        spent = sum(clock.take().values())
        clock.seconds = {**before, "evaluation": before.get("evaluation", 0.0) + spent}
