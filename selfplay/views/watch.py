"""What the watching screen knows of a run: one record, gathered from the ledger again and again.

A `Gatherer` keeps what closed steps gave, which never changes, and asks for the rest anew; so a refresh costs the same
on a run of a million trajectories. It opens nothing and waits for nothing.

Not here: how it is drawn (`watch_screen`), keys and pages (`watch_browser`), terminals and clocks (`cli.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from selfplay.events import Event
from selfplay.ledger import Reader, StepRow, Tally, watching
from selfplay.ledger.watching import Asked, Learnt, Recent, Spent
from selfplay.types import Choice, record
from selfplay.views.cost import cost_of, stage_seconds
from selfplay.views.evaluation import Summary, recorded, summary, summary_data
from selfplay.views.frontier import FrontierView, frontier_data
from selfplay.views.status import RunView, run_data, total
from selfplay.views.words import plural

WINDOW = 10
"""Closed steps that rates, reasons, seconds and costs are taken over."""
TREND = 24
"""Closed steps that a trend line shows."""
PLAYS = 60
"""Newest trajectories that can be opened."""
CHOICES = 8
EVALUATIONS = 3
ALARMS = 4
ENDED: Mapping[str, int] = {"done": 0, "stopped": 75, "failed": 1, "killed": 1}
"""How a run ended -> the exit code of whoever waited for it."""

Draw = Callable[[int], tuple[FrontierView | None, bool]]
"""Newest closed step -> the frontier as far as it is known (None: no task was played), and is it being worked out?"""


@record
class Warned:
    """An alarm, and what to do about it."""

    level: str
    code: str
    step: int | None
    at: float
    message: str
    fix: str
    """Empty where nothing is known."""


@record
class Watched:
    """A run at one moment."""

    run: RunView
    steps: tuple[StepRow, ...]
    """The newest closed ones, at most `TREND`, oldest first."""
    spent: Mapping[int, Spent]
    """Of the newest `WINDOW` steps."""
    asked: Asked
    """Of the open step."""
    frontier: FrontierView | None
    drawing: bool
    """Is a newer frontier being worked out?"""
    choices: tuple[Choice, ...]
    """The newest first."""
    plays: tuple[Recent, ...]
    """The newest first."""
    evaluations: tuple[tuple[int, Summary], ...]
    """(closed steps, figures), oldest first."""
    alarms: tuple[Warned, ...]
    """The newest, oldest first."""

    @property
    def window(self) -> tuple[StepRow, ...]:
        """The newest `WINDOW` closed steps."""
        return self.steps[-WINDOW:]

    @property
    def ended(self) -> bool:
        """Does nobody play it any more?"""
        return self.run.state != "running"


class Gatherer:
    """Asks one run again and again; what belongs to closed steps is asked once."""

    def __init__(self, reader: Reader, *, draw: Draw, fixes: Mapping[str, str]) -> None:
        """`fixes`: alarm's code -> what to do."""
        self._reader, self._draw, self._fixes = reader, draw, fixes
        self._closed = -2
        self._steps: tuple[StepRow, ...] = ()
        self._spent: dict[int, Spent] = {}
        self._evaluations: dict[int, Summary | None] = {}
        config = reader.run_row().config
        self._every, self._tasks, self._attempts = (
            int(config.get(f"eval.{name}") or 0) for name in ("every", "tasks", "attempts")
        )

    def look(self, run: RunView) -> Watched:
        """The run as it is now; `run` was read just before."""
        reader, last = self._reader, run.status.last_closed_step
        if last != self._closed:
            self._take(last)
        frontier, drawing = self._draw(last)
        alarms = reader.alarms()[-ALARMS:] if run.status.num_alarms else ()
        names = ("level", "code", "step", "at", "message")
        return Watched(
            run=run,
            steps=self._steps,
            spent=self._spent,
            asked=reader.ask(lambda ask: watching.asked(ask, last + 1)),
            frontier=frontier,
            drawing=drawing,
            choices=reader.ask(lambda ask: watching.newest_choices(ask, CHOICES)),
            plays=reader.ask(lambda ask: watching.newest_plays(ask, PLAYS)),
            evaluations=self._looks(last + 1),
            alarms=tuple(
                Warned(**{name: getattr(alarm, name) for name in names}, fix=self._fixes.get(alarm.code, ""))
                for alarm in alarms
            ),
        )

    def _take(self, last: int) -> None:
        since = max(0, last + 1 - WINDOW)
        known = {step: spent for step, spent in self._spent.items() if step >= since}
        first = max([since, *(step + 1 for step in known)])
        self._spent = known | self._reader.ask(lambda ask: watching.spent(ask, first, last + 1))
        self._steps = self._reader.step_rows(after=last - TREND)
        self._closed = last

    def _looks(self, closed: int) -> tuple[tuple[int, Summary], ...]:
        """The newest whole evaluations; one that is half played is asked for again."""
        if not self._every:
            return ()
        last = closed // self._every * self._every
        wanted = list(range(last, -1, -self._every))[: EVALUATIONS + 1]
        for done in wanted:
            if self._evaluations.get(done) is None:
                plays = recorded(self._reader, done, tasks=self._tasks, attempts=self._attempts)
                self._evaluations[done] = summary(plays, ks=sorted({1, self._attempts})) if plays else None
        found = [(done, self._evaluations[done]) for done in reversed(wanted)]
        return tuple((done, figures) for done, figures in found if figures is not None)[-EVALUATIONS:]


def refused(watched: Watched) -> Mapping[str, int]:
    """Reason code -> proposals refused in the window, the most frequent first."""
    counts: dict[str, int] = {}
    for spent in watched.spent.values():
        for reason, count in spent.refused.items():
            counts[reason] = counts.get(reason, 0) + count
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def places(watched: Watched) -> tuple[tuple[str, str], ...]:
    """(stage, role) of everybody who plays, proposers first."""
    closed, opened = watched.run.status.closed, watched.run.status.open
    found = {tuple(place.split("/", 1)) for place in (*closed, *opened)}
    return tuple((stage, role) for stage, role in sorted(found, key=lambda pair: (pair[0] != "propose", pair)))


def seconds_left(watched: Watched) -> float | None:
    """Seconds until the last planned step closes, at the rate of the newest steps; None where that is not known."""
    rows, run = watched.window, watched.run
    if run.state != "running" or len(rows) < 2 or run.steps <= run.closed:
        return None
    return (rows[-1].closed_at - rows[0].closed_at) / (len(rows) - 1) * (run.steps - run.closed)


def cost(watched: Watched) -> Mapping[str, float] | None:
    """What an accepted task of the window cost; None without one."""
    return cost_of(watched.window, watched.spent)


def watched_data(watched: Watched) -> dict[str, Any]:
    """As JSON: numbers, names, reason codes, and the sentences of curriculum and alarms; no text of a model."""
    last, every = (watched.steps[-1:], watched.window)
    return {
        **run_data(watched.run),
        "ended": watched.ended,
        "window": len(every),
        "roles": [
            {
                "stage": stage,
                "role": role,
                "last_step": rates(last, stage, role),
                "window": rates(every, stage, role),
            }
            for stage, role in places(watched)
        ],
        "refused": dict(refused(watched)),
        "stage_seconds": dict(stage_seconds(every)),
        "open_step_asked": {
            name: getattr(watched.asked, name) for name in ("proposals", "children", "replays", "tasks")
        },
        "cost_per_task": cost(watched),
        "seconds_left": seconds_left(watched),
        "frontier": frontier_data(watched.frontier) if watched.frontier is not None else None,
        "choices": [
            {name: getattr(one, name) for name in ("step", "index", "mode", "subject_id", "score", "why")}
            for one in watched.choices
        ],
        "plays": [
            {
                name: getattr(one, name)
                for name in ("id", "step", "stage", "role", "subject_id", "valid", "passed", "reason", "reward")
            }
            for one in watched.plays
        ],
        "evaluations": [{"closed": done, **summary_data(found)} for done, found in watched.evaluations],
        "newest_alarms": [
            {name: getattr(one, name) for name in ("level", "code", "step", "at", "fix")} for one in watched.alarms
        ],
    }


def rates(rows: Sequence[StepRow], stage: str, role: str) -> dict[str, float | None]:
    """Counts and shares of one role in these steps: `good` is the share valid, of attempts the share solved."""
    tally = tally_of(rows, stage, role)
    groups, informative = (
        sum(row.counts.get(f"{role}.{name}", 0) for row in rows) for name in ("groups", "informative")
    )
    return {
        "played": tally.played,
        "decided": tally.decided,
        "good": (tally.passed if stage == "attempt" else tally.valid) / tally.decided if tally.decided else None,
        "mean_reward": tally.reward_sum / tally.rewarded if tally.rewarded else None,
        "informative": informative / groups if groups else None,
    }


def tally_of(rows: Sequence[StepRow], stage: str, role: str) -> Tally:
    """Counts of one role in these steps."""
    found = [row.tallies[f"{stage}/{role}"] for row in rows if f"{stage}/{role}" in row.tallies]
    names = ("played", "decided", "valid", "passed", "rewarded", "tokens", "reward_sum", "truncated")
    return Tally(**{name: sum(getattr(tally, name) for tally in found) for name in names})


def step_event(row: StepRow, update: Learnt | None) -> Event:
    """The event that a run tells as a step closes, from what the ledger kept of it."""
    tallies = {side: total(row.tallies, stage) for side, stage in (("proposer", "propose"), ("solver", "attempt"))}
    sampling = row.stage_seconds.get("sampling")
    return Event(
        kind="step",
        step=row.step,
        data={
            **row.counts,
            "decided_proposals": tallies["proposer"].decided,
            **{f"{side}_reward": t.reward_sum / t.rewarded for side, t in tallies.items() if t.rewarded},
            "tokens_per_second": sum(t.tokens for t in tallies.values()) / sampling if sampling else None,
            "seconds": sum(row.stage_seconds.values()),
            **({"version": update.policy_version, "loss": update.loss} if update is not None else {}),
            "skipped": update.skipped if update is not None else None,
        },
    )


def updates_after(reader: Reader, step: int) -> Mapping[int, Learnt]:
    """Step -> its update, above `step`."""
    return {one.step: one for one in reader.ask(partial(watching.learnt, after=step))}


def ending(run: RunView, *, named: bool = True) -> str:
    """How the run stands, in a sentence, and the command that goes on; not for one that is found by its path alone."""
    words = f"{run.name}: {run.state}, {run.closed} of {plural(run.steps, 'step')}"
    return f"{words}; go on: selfplay run --name {run.name}" if run.resumable and named else words
