"""Where runs stand, from their ledgers: one row a run, one screen for one run, one table of its steps.

Not here: finding runs, reading files (`cli.status`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selfplay.ledger import AlarmRow, Status, StepRow, Tallies, Tally
from selfplay.types import record
from selfplay.views.cost import cost_words
from selfplay.views.evaluation import Summary, line, summary_data
from selfplay.views.words import UNKNOWN, duration, number, plural, share

State = Literal["running", "done", "stopped", "failed", "killed"]

STAGES: Mapping[str, str] = {"propose": "proposals", "attempt": "attempts"}


@record
class RunView:
    """A run as the screens see it."""

    name: str
    folder: str
    status: Status
    steps: int
    """Planned."""
    holder: str | None
    """Who holds it now, in words; None where nobody does."""
    alarms: tuple[AlarmRow, ...] = ()
    """The newest, oldest first."""
    evaluation: tuple[int, Summary] | None = None
    """Of the newest evaluation on held-out seeds: closed steps, figures."""
    paused: bool = False
    """Was the process that holds it asked to begin nothing new?"""
    raised: bool = False
    """Were more steps asked for once its last launch had played all that it was asked for?"""
    cost: Mapping[str, float] | None = None
    """Of an accepted task of the newest closed steps (`cost.cost_of`); None where there is none, or nobody asked."""

    @property
    def closed(self) -> int:
        """Steps that are closed."""
        return self.status.last_closed_step + 1

    @property
    def state(self) -> State:
        """What a person calls it."""
        launch = self.status.launch
        if self.holder is not None:
            return "running"
        # note: 0 steps are closed before the warm-up begins; and a budget may be spent before all steps are.
        if 0 < self.steps <= self.closed:
            return "done"
        if launch is None or launch.ended_at is None:
            return "killed"
        if launch.how == "done" and not self.raised:
            return "done"
        return "failed" if launch.how == "failed" else "stopped"

    @property
    def shown(self) -> str:
        """Its state on a screen: a running one may be paused."""
        return "paused" if self.paused else self.state

    @property
    def resumable(self) -> bool:
        """Would the same command play more?"""
        return self.state in ("stopped", "failed", "killed")


def run_data(view: RunView) -> dict[str, Any]:
    """One run as JSON: numbers, names and reason codes."""
    status = view.status
    return {
        "name": view.name,
        "folder": view.folder,
        "state": view.state,
        "paused": view.paused,
        "holder": view.holder,
        "game": status.run.game,
        "steps": view.steps,
        "closed": view.closed,
        "policy_version": status.policy_version,
        "config_digest": status.run.config_digest,
        "engine_version": status.run.engine_version,
        "forked_from": status.parent.words if status.parent is not None else None,
        "seeds": dict(status.num_seeds),
        "tasks": status.num_tasks,
        "updates": dict(status.num_updates),
        "faults": status.num_faults,
        "alarms": dict(status.num_alarms),
        "newest_alarms": [{"level": a.level, "code": a.code, "step": a.step, "at": a.at} for a in view.alarms],
        "last_seen": status.last_seen,
        "closed_steps": {stage: tally_data(total(status.closed, stage)) for stage in STAGES},
        "open_step": {stage: tally_data(total(status.open, stage)) for stage in STAGES},
        "last_step": step_data(status.last_step) if status.last_step is not None else None,
        "evaluation": {"closed": view.evaluation[0], **summary_data(view.evaluation[1])} if view.evaluation else None,
        "cost_per_task": dict(view.cost) if view.cost is not None else None,
    }


def step_data(row: StepRow) -> dict[str, Any]:
    """One closed step as JSON."""
    return {
        "step": row.step,
        "closed_at": row.closed_at,
        "seconds": sum(row.stage_seconds.values()),
        "stage_seconds": dict(row.stage_seconds),
        "counts": dict(row.counts),
        **{stage: tally_data(total(row.tallies, stage)) for stage in STAGES},
    }


def tally_data(tally: Tally) -> dict[str, Any]:
    """Counts of one stage as JSON."""
    names = ("played", "faults", "decided", "left_out", "valid", "passed", "truncated", "tokens", "rewarded")
    mean = tally.reward_sum / tally.rewarded if tally.rewarded else None
    return {**{name: getattr(tally, name) for name in names}, "mean_reward": mean, "reasons": dict(tally.reasons)}


def total(tallies: Tallies, stage: str) -> Tally:
    """Counts of one stage, all roles together."""
    return _add([tally for place, tally in tallies.items() if place.split("/", 1)[0] == stage])


def _add(parts: Sequence[Tally]) -> Tally:
    reasons: dict[str, int] = {}
    for part in parts:
        for reason, count in part.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    names = ("played", "faults", "decided", "left_out", "valid", "passed", "truncated", "tokens", "rewarded")
    sums = {name: sum(getattr(part, name) for part in parts) for name in (*names, "reward_sum")}
    return Tally(**sums, reasons=reasons)


def runs_table(views: Sequence[RunView], *, now: float) -> Table:
    """One row a run; `now` is Unix seconds."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("run", "state", "steps", "valid", "solved", "last seen"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("steps", "valid", "solved") else "left")
    for view in views:
        proposals, attempts = (total(view.status.closed, stage) for stage in STAGES)
        ago = f"{duration(max(0.0, now - view.status.last_seen))} ago"
        table.add_row(
            Text(view.name),
            view.shown,
            f"{view.closed}/{view.steps}",
            share(proposals.valid, proposals.decided),
            share(attempts.passed, attempts.decided),
            ago,
        )
    return table


def run_screen(view: RunView, *, now: float) -> RenderableType:
    """One screen for one run."""
    status = view.status
    parts: list[RenderableType] = [_headline(view, now=now), Text(), _counts(status)]
    for stage, noun in STAGES.items():
        both = [total(status.closed, stage), total(status.open, stage)]
        reasons = _reasons(both)
        if reasons:
            parts += [Text(f"{noun}: {reasons}")]
        tally = _add(both)
        if tally.left_out:
            left_out = f"{share(tally.left_out, tally.played)} of them left out as suspicious: no reward"
            parts.append(Text(f"{noun}: {left_out}", style="yellow"))
    if view.evaluation is not None:
        parts += [Text(f"held-out after {plural(view.evaluation[0], 'step')}: {line(view.evaluation[1])}")]
    if status.last_step is not None:
        parts += [Text(), step_table([status.last_step])]
    if view.cost is not None:
        parts.append(Text(f"an accepted task: {cost_words(view.cost)}"))
    if status.num_faults:
        parts.append(Text(f"{plural(status.num_faults, 'fault')} of the machine, retried: they decide nothing"))
    parts += [Text(f"{alarm.level}: {alarm.message}", style="yellow") for alarm in view.alarms]
    return Group(*parts)


def step_table(rows: Sequence[StepRow], *, most: int = 20) -> Table:
    """What was played, what was decided, what it cost: a row a closed step, of more than `most` a row a stretch."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    titles = ("step", "proposed", "valid", "tasks", "tried", "solved", "teach", "reward p/s", "tok/s", "time")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    size = 1 if len(rows) <= most else -(-len(rows) // (most // 2))
    for first in range(0, len(rows), size):
        table.add_row(*_stretch(rows[first : first + size]))
    return table


def _stretch(rows: Sequence[StepRow]) -> list[str]:
    """The cells of some steps in a row, taken together."""
    proposals, attempts = (_add([total(row.tallies, stage) for row in rows]) for stage in STAGES)
    sampling = sum(row.stage_seconds.get("sampling", 0.0) for row in rows)
    tokens = proposals.tokens + attempts.tokens
    first, last = rows[0].step, rows[-1].step
    return [
        str(first) if first == last else f"{first}-{last}",
        str(proposals.played),
        share(proposals.valid, proposals.decided),
        _sum_of(rows, "tasks"),
        str(attempts.played),
        share(attempts.passed, attempts.decided),
        f"{_sum_of(rows, 'informative')}/{_sum_of(rows, 'groups')}",
        " ".join(_mean_reward(tally) for tally in (proposals, attempts)),
        number(tokens / sampling, digits=0) if sampling else UNKNOWN,
        duration(sum(sum(row.stage_seconds.values()) for row in rows)),
    ]


def time_words(rows: Sequence[StepRow]) -> str:
    """Where the time of these steps went: `sampling 61 %, verification 30 %, ...`; empty where none was counted."""
    seconds: dict[str, float] = {}
    for row in rows:
        for name, value in row.stage_seconds.items():
            seconds[name] = seconds.get(name, 0.0) + value
    whole = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {100 * value / whole:.1f} %" for name, value in ordered) if whole else ""


def _headline(view: RunView, *, now: float) -> Text:
    status = view.status
    head = Text()
    head.append(view.name, style="bold")
    held = f" ({view.holder})" if view.holder is not None else ""
    head.append(f" · {status.run.game} · {view.shown}{held} · {view.closed}/{view.steps} steps")
    head.append(f" · weights v{status.policy_version}")
    seeds = ", ".join(f"{count} {split.replace('_', ' ')}" for split, count in sorted(status.num_seeds.items()))
    words = [f"last written {duration(max(0.0, now - status.last_seen))} ago"]
    words += [f"seeds: {seeds}"] if seeds else []
    words += [plural(status.num_tasks, "task")]
    warmup = status.num_updates.get("warmup", 0)
    words += [f"warm-up of {plural(warmup, 'update')}"] if warmup else []
    head.append("\n" + " · ".join(words), style="dim")
    if status.parent is not None:
        head.append(f"\nforked from {status.parent.words}", style="dim")
    return head


def _counts(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for title in ("played", "decided", "valid", "solved", "reward", "cut short", "faults"):
        table.add_column(title, justify="right", no_wrap=True)
    for when, tallies in (("", status.closed), (" (open step)", status.open)):
        for stage, noun in STAGES.items():
            tally = total(tallies, stage)
            if when and not tally.played and not tally.faults:
                continue
            table.add_row(
                noun + when,
                str(tally.played),
                str(tally.decided),
                share(tally.valid, tally.decided),
                share(tally.passed, tally.decided) if stage == "attempt" else "",
                _mean_reward(tally),
                str(tally.truncated),
                str(tally.faults),
            )
    return table


def _reasons(tallies: Sequence[Tally]) -> str:
    counts = _add(tallies).reasons
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items(), key=lambda p: (-p[1], p[0])))


def _mean_reward(tally: Tally) -> str:
    return number(tally.reward_sum / tally.rewarded, signed=True) if tally.rewarded else UNKNOWN


def _sum_of(rows: Sequence[StepRow], name: str) -> str:
    values = [row.counts[name] for row in rows if name in row.counts]
    return f"{sum(values):.0f}" if values else UNKNOWN
