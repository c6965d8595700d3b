"""Which plays are worth reading first: selectors of `selfplay inspect`, each a short list with the reason why.

    best, worst    plays with the highest and the lowest advantage: what an update was pushed to, and away from
    stuck          tasks that no attempt ever solved, those that were tried most first
    surprising     tasks whose solve rate is furthest from what was to be expected of it
    rejected       proposals that were refused for one reason, the newest first

A task is expected to go on as it went before; a new one, as first plays go in the steps looked through.

Not here: SQL (`ledger.picking`), what a page shows (`inspect_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from selfplay.ledger import Reader, picking
from selfplay.ledger.picking import Record
from selfplay.types import record
from selfplay.views.inspect import ID_DIGITS
from selfplay.views.words import number, plural, shorten

Selector = Literal["best", "worst", "stuck", "surprising", "rejected"]

MOST = 10
"""Rows of a list."""
STEPS = 10
"""Newest closed steps that are looked through where no step is named."""


@record
class Picked:
    """A play, or a task, and why it was picked."""

    id: str
    kind: Literal["proposal", "attempt", "task"]
    step: int
    score: float
    """What it was ordered by."""
    reason: str | None
    """Code of the mint or the judge; None for a task."""
    reward: float | None
    said: str
    """Why it was picked, in numbers."""
    why: str
    """Of the verdict; empty for a task."""


@record
class Pick:
    """What a selector found."""

    selector: Selector
    steps: tuple[int, ...]
    """The steps that were looked through."""
    found: tuple[Picked, ...]


def pick(reader: Reader, selector: Selector, steps: Sequence[int], *, reason: str = "") -> Pick:
    """What `selector` finds in those closed steps; `reason` is for `rejected`."""
    ways: Mapping[str, Callable[[], Sequence[Picked]]] = {
        "best": lambda: _ranked(reader, steps, best=True),
        "worst": lambda: _ranked(reader, steps, best=False),
        "stuck": lambda: stuck(reader.ask(partial(picking.records, steps=steps))),
        "surprising": lambda: surprising(reader.ask(partial(picking.records, steps=steps)), steps),
        "rejected": lambda: _rejected(reader, steps, reason),
    }
    return Pick(selector=selector, steps=tuple(steps), found=tuple(ways[selector]()) if steps else ())


def stuck(records: Sequence[Record]) -> list[Picked]:
    """The tasks that were never solved, those that were tried most first, then the newest. Pure."""
    found = []
    for one in records:
        decided = sum(tried for _, tried, _ in one.rounds)
        if decided and not any(solved for *_, solved in one.rounds):
            said = f"solved in 0 of {plural(decided, 'attempt')}, played in {plural(len(one.rounds), 'step')}"
            found.append(_task(one, score=decided, said=said))
    return sorted(found, key=lambda task: (-task.score, -task.step, task.id))[:MOST]


def surprising(records: Sequence[Record], steps: Sequence[int]) -> list[Picked]:
    """The tasks whose newest solve rate is furthest from what was expected, in attempts' standard errors. Pure.

    The score is |rate - expected| / sqrt(p (1 - p) / n) with p the expected rate, kept between 1/(2m + 2) and its
    complement where m attempts it rests on: a rate of 0 of 8 is no certainty.
    """
    firsts = [one.rounds[0] for one in records if one.rounds[0][0] in set(steps)]
    prior = (sum(solved for *_, solved in firsts), sum(decided for _, decided, _ in firsts))
    found = []
    for one in records:
        step, decided, solved = one.rounds[-1]
        before = one.rounds[:-1]
        known = (sum(s for *_, s in before), sum(d for _, d, _ in before)) if before else prior
        expected = _kept(known)
        score = abs(solved / decided - expected) / (expected * (1 - expected) / decided) ** 0.5
        whence = f"{known[0]} of {known[1]} before" if before else f"new tasks: {known[0]} of {known[1]}"
        found.append(_task(one, score=score, said=f"solved in {solved} of {decided}; {whence}", step=step))
    return sorted(found, key=lambda task: (-task.score, -task.step, task.id))[:MOST]


def _kept(known: tuple[int, int]) -> float:
    """(solved, decided) as a rate that is neither 0 nor 1."""
    solved, decided = known
    least = 1.0 / (2 * decided + 2)
    return min(1.0 - least, max(least, solved / decided if decided else 0.5))


def _task(one: Record, *, score: float, said: str, step: int | None = None) -> Picked:
    at = one.rounds[-1][0] if step is None else step
    return Picked(id=one.task_id, kind="task", step=at, score=score, reason=None, reward=None, said=said, why="")


def _ranked(reader: Reader, steps: Sequence[int], *, best: bool) -> list[Picked]:
    rows = reader.ask(partial(picking.by_advantage, steps=steps, best=best, limit=MOST))
    return [
        Picked(
            id=row.id,
            kind="proposal" if row.stage == "propose" else "attempt",
            step=row.step,
            score=row.advantage,
            reason=row.reason,
            reward=row.reward,
            said=f"advantage {number(row.advantage, signed=True)}, reward {number(row.reward, signed=True)}",
            why=row.why,
        )
        for row in rows
    ]


def _rejected(reader: Reader, steps: Sequence[int], reason: str) -> list[Picked]:
    rows = reader.ask(lambda ask: picking.refused(ask, reason, steps, limit=MOST))
    return [
        Picked(
            id=row.id,
            kind="proposal",
            step=row.step,
            score=float(row.step),
            reason=row.reason,
            reward=row.reward,
            said=row.reason,
            why=row.why,
        )
        for row in rows
    ]


def pick_table(found: Pick) -> Table:
    """A line each: id, step, and why it was picked."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in (found.found[0].kind if len({one.kind for one in found.found}) == 1 else "play", "step"):
        table.add_column(title, no_wrap=True, justify="right" if title == "step" else "left")
    table.add_column("why it is here", overflow="fold")
    for one in found.found:
        said = one.said if one.said != one.reason else ""
        words = " · ".join(part for part in (said, shorten(one.why, 120)) if part)
        table.add_row(one.id[:ID_DIGITS], str(one.step), Text(words))
    return table


def pick_data(found: Pick, *, content: bool) -> dict[str, Any]:
    """As JSON; the verdict's sentence, which may quote a model, only where `content` is asked for."""
    names = ("id", "kind", "step", "score", "reason", "reward", *(("said", "why") if content else ()))
    return {
        "selector": found.selector,
        "steps": list(found.steps),
        "found": [{name: getattr(one, name) for name in names} for one in found.found],
    }
