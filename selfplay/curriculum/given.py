"""`given`: known tasks that nobody of the run proposed, each as often as the others; the proposer is not asked.

Where they come from is the option `tasks`; they are recorded before the first step (`selfplay.given`). So a solver
learns from a fixed set: repair alone, which self-play is to be compared with (SSR, arXiv 2512.18552, section 4.3). In a
mix each game plays its own.

Not here: making and recording them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, runtime_checkable

from selfplay.curriculum.history import History, refuse_standstill
from selfplay.curriculum.options import defaults_of, within
from selfplay.errors import UserError
from selfplay.types import Choice, Seed, Task, draw, record

PROCEDURAL = "procedural"
"""The option's value for one task a train seed, made by the game without a model; `procedural:N`: of N seeds a game."""


def seeds_of(tasks: str) -> int | None:
    """Train seeds of a game, at most, that a task is made of; None where `tasks` names a run or a file.

    Raises:
        ValueError: their number cannot be read.
    """
    name, colon, number = tasks.partition(":")
    if name != PROCEDURAL:
        return None
    if not colon:
        return sys.maxsize
    if not number.isdecimal() or not int(number):
        raise ValueError(f"option `tasks` is `{tasks}`, expected `{PROCEDURAL}`, or `{PROCEDURAL}:50` for 50 of them")
    return int(number)


@record
class Given:
    """Options of `given`."""

    tasks: str = PROCEDURAL
    """`procedural`; `procedural:N`, of N train seeds; or a run's folder or a file of tasks, seen from this run's."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        within(self, patience=(1, inf))
        seeds_of(self.tasks)

    @property
    def beforehand(self) -> str:
        """Where the tasks come from that are there before the first step."""
        return self.tasks


GIVEN = Given()


@runtime_checkable
class Recorded(Protocol):
    """A past that knows tasks before they are played, as the ledger does."""

    def tasks(self, step: int) -> Sequence[Task]: ...

    def choices(self, step: int) -> Sequence[Choice]: ...


def given(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Given = GIVEN,
) -> tuple[Choice, ...]:
    """The `n` given tasks that were chosen least often; ties by a draw keyed by (seed, step, task).

    Raises:
        UserError: there is none.
        RunFailed: the last `patience` steps changed nothing.
    """
    before = max(0, step - staleness)
    since = max(0, before - options.patience)
    moved = history.movement(since=since, before=before)
    if len(moved) == options.patience and not any(moved.values()):
        refuse_standstill(moved, {}, history.known_tasks(since=since, before=before), patience=options.patience)
    found = least_chosen(history, n=n, before=before, taken=taken, key=(seed, step))
    if not found:
        raise UserError("no task is given to play", hint="see the option `tasks`: selfplay config curriculum.options")
    return tuple(
        Choice(
            step=step,
            index=first + place,
            mode="replay",
            subject_id=one,
            score=float(-count),
            why=f"given beforehand, chosen {count} times so far",
        )
        for place, (one, count) in enumerate(found)
    )


def least_chosen(
    history: History, *, n: int, before: int, taken: Collection[str], key: tuple[object, ...]
) -> tuple[tuple[str, int], ...]:
    """The `n` given tasks that were chosen least often below `before`, and how often; ties by a draw of (key, task)."""
    assert isinstance(history, Recorded)
    there = [task.id for task in history.tasks(-1) if task.split == "train"]
    counts = Counter(choice.subject_id for past in range(before) for choice in history.choices(past))
    ranked = sorted(there, key=lambda one: (one in taken, counts[one], draw(*key, "given", one)))
    return tuple((one, counts[one]) for one in ranked[:n])


def tasks_of(choose: Any) -> str:
    """Where the tasks come from that a curriculum needs beforehand; empty where it needs none."""
    options = choose.keywords.get("options") if isinstance(choose, partial) else defaults_of(choose)
    return str(getattr(options, "beforehand", ""))
