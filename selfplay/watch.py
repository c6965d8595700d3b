"""Tells what the alarms say: to the ledger, to whoever listens, and, where `alarms.stop` names one, by ending the run.

An alarm is told when it begins, and once: a run that comes back tells what its killed launch had not told, and nothing
twice. A run that an alarm ends is closed and saved first, so that the same command goes on.

Not here: what is watched, and when an alarm begins (`alarms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from selfplay import probe, saves
from selfplay.alarms import ALARMS, EVALUATIONS, LOOKBACK, REST, Point, Rate, began, disagreement
from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.ledger import Reader, held_out, metrics
from selfplay.ledger.bulk import Ask
from selfplay.ledger.records import Level
from selfplay.types import Seed

if TYPE_CHECKING:
    from selfplay.loop import Run

EVALUATED = 2 * EVALUATIONS + 1 + REST
"""Newest evaluations that are read: as many as an alarm may look at, now and `REST` steps ago."""


def history_of(ledger: Reader, *, evaluated: Callable[[int], bool]) -> list[Point]:
    """The last closed steps of a run; `evaluated` says whether there is an evaluation after so many of them."""
    after = ledger.last_closed_step() - LOOKBACK
    rows, measured = ledger.step_rows(after=after), ledger.ask(lambda ask: metrics.played(ask, after))
    looks = [row.step for row in rows if evaluated(row.step + 1)][-EVALUATED:]
    rates = {step: ledger.ask(partial(_held_out, done=step + 1)) for step in looks}
    return [
        Point(
            step=row.step,
            counts=row.counts,
            tallies=row.tallies,
            metrics=measured.get(row.step, {}),
            held_out=rates.get(row.step),
        )
        for row in rows
    ]


def _held_out(ask: Ask, *, done: int) -> Rate | None:
    """Attempts on held-out tasks after `done` closed steps; None where some are owed."""
    plays = [play for play in held_out.plays(ask, done) if play.side == "solver"]
    if not plays or any(play.owed for play in plays):
        return None
    passed = [play.passed for play in plays if play.passed is not None]
    return Rate(passed=sum(passed), decided=len(passed))


async def check(run: Run) -> None:
    """Tell what begins at the last closed step, unless an earlier launch told it.

    Raises:
        RunFailed: an alarm that ends the run begins; what is closed is saved.
    """
    history = history_of(run.ledger, evaluated=run.settings.evaluation.due)
    if not history:
        return
    step = history[-1].step
    begun = {name: began(alarm, history, run.settings.alarms) for name, alarm in ALARMS.items()}
    if found := {name: text for name, text in begun.items() if text}:
        told = _told(run.ledger, step)
        await _tell(run, {name: text for name, text in found.items() if name not in told}, step=step)


async def agree(run: Run, seeds: Sequence[Seed]) -> None:
    """Before the first step of a launch: are sampler and learner the same model?

    Raises:
        RunFailed: they are not, and `alarms.stop` names `agreement`.
    """
    measured = await probe.measure(run, seeds)
    closed = run.ledger.last_closed_step()
    found = disagreement([Point(step=closed, metrics=measured.metrics)], run.settings.alarms)
    if found:
        await _tell(run, {"agreement": "; ".join(found.values())}, step=closed if closed >= 0 else None)


def _told(ledger: Reader, step: int | None) -> set[str]:
    return {row.code for row in ledger.alarms() if row.step == step}


async def _tell(run: Run, found: Mapping[str, str], *, step: int | None) -> None:
    """Append what is not there yet, show all, and end the run where one of them is to."""
    ends = [name for name in found if name in run.settings.alarms.stop]
    told = _told(run.ledger, step)
    for name, text in found.items():
        level: Level = "error" if name in ends else ALARMS[name].level
        if name not in told:
            run.ledger.append_alarm(level=level, code=name, message=text, step=step)
        data = {"level": level, "name": name, "text": text, "fix": ALARMS[name].fix}
        run.observe(Event(kind="alarm", step=step, data=data))
    if not ends:
        return
    await saves.catch_up(run)
    others = ", ".join(f'"{name}"' for name in run.settings.alarms.stop if name not in ends)
    raise RunFailed(
        f"alarm `{ends[0]}` ended the run: {found[ends[0]]}",
        hint=f"{ALARMS[ends[0]].fix}\n      what is closed is saved, and the same command goes on; "
        f"to be warned only, add: -s 'alarms.stop=[{others}]'",
    )
