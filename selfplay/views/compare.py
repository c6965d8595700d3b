"""Two runs side by side: held-out tasks in pairs, figures of their steps, and the settings that differ.

A difference is the second run's figure less the first's. On held-out tasks it is taken task by task and the interval is
by bootstrap over tasks (`estimate.difference`), so that what makes a task hard for both does not widen it. The same
task has another id in a run of other settings; its key and its seed are the same.

Not here: finding runs, the exit code (`cli.compare`).

Example:
    >>> condition = parse("solved<-0.05")
    >>> condition.name, condition.sign, condition.value
    ('solved', '<', -0.05)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selfplay.errors import UserError
from selfplay.estimate import Estimate, difference, mean, pass_rate
from selfplay.ledger import Reader, StepRow, held_out
from selfplay.types import record
from selfplay.views.evaluation import estimate_data, percent, recorded
from selfplay.views.status import total
from selfplay.views.words import UNKNOWN, number, plural, shorten

Counts = Mapping[str, tuple[int, int]]

SOLVED = "held_out.solved"

SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*([a-z@0-9_.]+?)(?:\.(low|high))?\s*(<=|>=|<|>)\s*([-+]?\d*\.?\d+)\s*")


@record
class Side:
    """One of the two runs."""

    name: str
    closed: int
    evaluated: int | None
    """Closed steps of the evaluation that is compared; None where there is none."""
    attempts: Counts
    """Held-out task, by seed and key -> (decided, passed)."""
    valid: Mapping[str, float]
    """Held-out seed -> share of its decided proposals that are valid."""
    figures: Mapping[str, float | None]
    """Name -> over all closed steps."""
    config: Mapping[str, Any]


@record
class Pair:
    """A figure of both, and the second's less the first's."""

    name: str
    first: Estimate
    second: Estimate
    difference: Estimate


@record
class Comparison:
    """What two runs have in common, and where they differ."""

    first: Side
    second: Side
    pairs: tuple[Pair, ...]
    """On held-out tasks and seeds that both were evaluated on; empty where there are none."""
    won: int
    """Tasks of `solved` of which the second solved a larger share."""
    lost: int
    settings: tuple[tuple[str, Any, Any], ...]
    """(key, the first's value, the second's)."""

    @property
    def solved(self) -> Pair | None:
        """Of held-out tasks; None where no task has a decided attempt of both."""
        return next((pair for pair in self.pairs if pair.name == SOLVED), None)

    def known(self) -> dict[str, Estimate]:
        """Name -> difference, for conditions."""
        plain = {
            name: _plain(second - first)
            for name, first in self.first.figures.items()
            if first is not None and (second := self.second.figures.get(name)) is not None
        }
        return plain | {pair.name: pair.difference for pair in self.pairs}


@record
class Condition:
    """`NAME<VALUE`, about a difference or an end of its interval."""

    text: str
    name: str
    end: str
    """`low`, `high`, or empty: the difference itself."""
    sign: str
    value: float


def side_of(reader: Reader, *, at: int | None = None) -> Side:
    """What is compared of a run: its evaluation after `at` closed steps, else its newest whole one."""
    rows, config = reader.step_rows(), reader.run_row().config
    done, plays = _evaluation(reader, config, at)
    names = {task.id: f"{task.seed_id}:{task.key}" for task in reader.ask(held_out.tasks)} if plays else {}
    attempts: dict[str, tuple[int, int]] = {}
    proposed: dict[str, list[bool]] = {}
    for play in plays:
        if play.side == "solver":
            n, c = attempts.get(name := names.get(play.subject_id, play.subject_id), (0, 0))
            attempts[name] = (n + (play.passed is not None), c + bool(play.passed))
        elif play.valid is not None:
            proposed.setdefault(play.subject_id, []).append(play.valid)
    return Side(
        name=reader.folder.name,
        closed=len(rows),
        evaluated=done if plays else None,
        attempts=attempts,
        valid={seed: sum(found) / len(found) for seed, found in proposed.items()},
        figures=figures(rows),
        config=config,
    )


def _evaluation(reader: Reader, config: Mapping[str, Any], at: int | None) -> tuple[int, Sequence[Any]]:
    every, tasks, attempts = (int(config.get(f"eval.{name}") or 0) for name in ("every", "tasks", "attempts"))
    if not every:
        return 0, ()
    last = (reader.last_closed_step() + 1) // every * every
    for done in (at,) if at is not None else (last, last - every):
        plays = recorded(reader, done, tasks=tasks, attempts=attempts) if done >= 0 else None
        if plays:
            return done, plays
    return 0, ()


def figures(rows: Sequence[StepRow]) -> dict[str, float | None]:
    """Of the closed steps of a run, all together; None where there is nothing to divide by."""
    proposals, attempts = ([total(row.tallies, stage) for row in rows] for stage in ("propose", "attempt"))

    def ratio(top: float, bottom: float) -> float | None:
        return top / bottom if bottom else None

    seconds = sum(sum(row.stage_seconds.values()) for row in rows)
    tasks = sum(row.counts.get("tasks", 0) for row in rows)
    tokens = sum(tally.tokens for tally in (*proposals, *attempts))
    groups, informative = (sum(row.counts.get(name, 0) for row in rows) for name in ("groups", "informative"))
    return {
        "valid": ratio(sum(t.valid for t in proposals), sum(t.decided for t in proposals)),
        "solved": ratio(sum(t.passed for t in attempts), sum(t.decided for t in attempts)),
        "proposer_reward": ratio(sum(t.reward_sum for t in proposals), sum(t.rewarded for t in proposals)),
        "solver_reward": ratio(sum(t.reward_sum for t in attempts), sum(t.rewarded for t in attempts)),
        "informative": ratio(informative, groups),
        "tokens_per_task": ratio(tokens, tasks),
        "seconds_per_step": ratio(seconds, len(rows)),
    }


def compare(first: Side, second: Side) -> Comparison:
    """Both in pairs. Pure: equal arguments give equal intervals."""
    both = first.attempts.keys() & second.attempts.keys()
    decided = {task for task in both if first.attempts[task][0] and second.attempts[task][0]}
    a, b = ({task: side.attempts[task] for task in decided} for side in (first, second))
    # note: of these alone, or one task without a decision would hide what all the others show.
    least = min((n for counts in (a, b) for n, _ in counts.values()), default=0)
    pairs = [
        Pair(
            name=SOLVED if k == 1 else f"held_out.pass@{k}",
            first=pass_rate(a, k=k),
            second=pass_rate(b, k=k),
            difference=replace(difference(a, b, k=k), left_out=len(both - decided)),
        )
        for k in (sorted({1, least}) if least else ())
    ]
    seeds = sorted(first.valid.keys() & second.valid.keys())
    if seeds:
        ours, theirs = ([side.valid[seed] for seed in seeds] for side in (first, second))
        apart = [late - early for early, late in zip(ours, theirs, strict=True)]
        pairs.append(Pair(name="held_out.valid", first=mean(ours), second=mean(theirs), difference=mean(apart)))
    rates = [(a[task][1] / a[task][0], b[task][1] / b[task][0]) for task in decided]
    keys = [key for key in {**first.config, **second.config} if first.config.get(key) != second.config.get(key)]
    return Comparison(
        first=first,
        second=second,
        pairs=tuple(pairs),
        won=sum(late > early for early, late in rates),
        lost=sum(late < early for early, late in rates),
        settings=tuple((key, first.config.get(key), second.config.get(key)) for key in keys),
    )


def parse(text: str) -> Condition:
    """A condition such as `solved<-0.05` or `held_out.solved.high<0`.

    Raises:
        UserError: it is none.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UserError(
            f"`{text}` is no condition", hint="NAME<VALUE, e.g. --fail-if 'solved<-0.05'; signs: <, <=, >, >="
        )
    name, end, sign, value = found.groups()
    return Condition(text=text, name=name, end=end or "", sign=sign, value=float(value))


def holds(condition: Condition, comparison: Comparison) -> bool:
    """Does it hold? `solved` and `valid` are those of held-out tasks where both runs have them.

    Raises:
        UserError: nothing of that name is known of both runs.
    """
    known = comparison.known()
    found = known.get(f"held_out.{condition.name}") or known.get(condition.name)
    if found is None or found.value is None:
        there = ", ".join(name for name, estimate in known.items() if estimate.value is not None)
        raise UserError(f"`{condition.name}` is not known of both runs", hint=f"known: {there or 'nothing'}")
    value = {"": found.value, "low": found.low, "high": found.high}[condition.end]
    assert value is not None
    return SIGNS[condition.sign](value, condition.value)


def compare_screen(found: Comparison) -> RenderableType:
    """Held-out tasks, figures of the steps, settings."""
    first, second = found.first, found.second
    parts: list[RenderableType] = [Text(f"{first.name} · {second.name}", style="bold"), Text()]
    if found.pairs:
        table = _table("on held-out tasks", first.name, second.name, "difference, 95 %")
        for pair in found.pairs:
            sign = percent(pair.difference, signed=True)
            table.add_row(pair.name.removeprefix("held_out."), percent(pair.first), percent(pair.second), sign)
        parts += [table, Text(_on_tasks(found), style="dim"), Text()]
    else:
        parts += [Text(_on_tasks(found)), Text()]
    table = _table(f"steps ({first.closed}, {second.closed})", first.name, second.name, "difference")
    for name, value in first.figures.items():
        other = second.figures.get(name)
        apart = other - value if value is not None and other is not None else None
        table.add_row(name, number(value), number(other), number(apart, signed=True))
    parts += [table, Text()]
    if not found.settings:
        return Group(*parts, Text("settings: the same"))
    table = _table("settings that differ", first.name, second.name)
    for key, old, new in found.settings:
        table.add_row(Text(key), _value(old), _value(new))
    return Group(*parts, table)


def _on_tasks(found: Comparison) -> str:
    """How many held-out tasks are behind `solved`; where there are none, why not."""
    first, second = found.first, found.second
    if found.solved is None:
        said = "no held-out tasks that both were evaluated on"
        there = [side for side in (first, second) if side.attempts]
        if not there:
            return said
        if first.attempts.keys() & second.attempts.keys():
            said = "no held-out task that both have a decided attempt on"
        said += f", only {there[0].name} was" if len(there) == 1 else ""
        return f"{said}: `solved` of --fail-if is that of the steps"
    difference = found.solved.difference
    same = difference.units - found.won - found.lost
    when = f"after {first.evaluated} and {plural(second.evaluated or 0, 'step')}"
    better = f"{second.name} solved more of {found.won}, less of {found.lost}, as much of {same}"
    left = f"; {plural(difference.left_out, 'task')} without a decided attempt left out" if difference.left_out else ""
    return f"{plural(difference.units, 'task')} of both, {when}: {better}{left}"


def compare_data(found: Comparison) -> dict[str, Any]:
    """As JSON."""
    return {
        "runs": [_side_data(found.first), _side_data(found.second)],
        "held_out": [
            {
                "name": pair.name,
                "first": estimate_data(pair.first),
                "second": estimate_data(pair.second),
                "difference": estimate_data(pair.difference),
            }
            for pair in found.pairs
        ],
        "won": found.won,
        "lost": found.lost,
        "settings": [{"key": key, "first": old, "second": new} for key, old, new in found.settings],
    }


def _side_data(side: Side) -> dict[str, Any]:
    return {"name": side.name, "closed": side.closed, "evaluated": side.evaluated, "figures": dict(side.figures)}


def _plain(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value, units=0)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at, title in enumerate(titles):
        table.add_column(Text(title), justify="right" if at else "left", overflow="fold")
    return table


def _value(value: object) -> Text:
    # note: as text, for `requests[socks]` would be read as markup and shown as `requests`.
    return Text(UNKNOWN if value is None else shorten(str(value), 60))
