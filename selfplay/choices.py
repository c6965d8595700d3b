"""What a round of a step plays: its recorded choices, or new ones that can be played; seeds and tasks from choices.

A step has one round, and more where too few of its groups teach. Every choice of a later round says its round in the
term `round`, so that a run that was killed tells them apart.

Pure. Not here: choosing (`curriculum`), playing (`stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from selfplay.curriculum.needs import missing, needs_of_choices
from selfplay.errors import RunFailed
from selfplay.games import Abilities
from selfplay.types import Choice, Seed, Task

Subject = TypeVar("Subject", Seed, Task)
TaskOf = Callable[[str], Task | None]
"""The task of an id, if there is one."""


def of_round(recorded: Iterable[Choice], refill: int, *, n: int) -> tuple[Choice, ...]:
    """The recorded choices of that round; `n` is the most that a round has."""
    # note: rounds of ledgers from before the term were filled, so their places tell.
    return tuple(choice for choice in recorded if choice.terms.get("round", choice.index // n) == refill)


def numbered(
    chosen: Iterable[Choice], *, taken: Collection[str], first: int, refill: int, n: int
) -> tuple[Choice, ...]:
    """At most `n` of `chosen`, each of its round, in order; without subjects that the step has played already."""
    fresh = list({choice.subject_id: choice for choice in chosen if choice.subject_id not in taken}.values())[:n]
    added = {"round": refill} if refill else {}
    return tuple(replace(choice, index=first + i, terms={**choice.terms, **added}) for i, choice in enumerate(fresh))


def refuse_unplayable(chosen: Sequence[Choice], can: Abilities, *, game: str) -> None:
    """A choice of a curriculum that did not say beforehand what it asks for.

    Raises:
        RunFailed: the game has not what one of them asks for.
    """
    if lacks := missing(needs_of_choices(chosen), can):
        raise RunFailed(
            f"the curriculum chose {', '.join(lacks)}, which game `{game}` does not have",
            hint="set curriculum.choose to another function; presets: selfplay ls",
        )


def subjects(chosen: Sequence[Choice], seeds: Sequence[Seed], task_of: TaskOf) -> tuple[list[Seed], list[Task]]:
    """The seeds to propose on and the known tasks to replay, in order.

    Raises:
        RunFailed: one of them is not there, or is held out.
    """
    there = {seed.id: seed for seed in seeds}
    gone = ("its source no longer holds", "the ledger does not have")
    new = [_train(choice, there.get(choice.subject_id), gone[0]) for choice in chosen if choice.mode == "propose"]
    known = [_train(choice, task_of(choice.subject_id), gone[1]) for choice in chosen if choice.mode == "replay"]
    return new, known


def _train(choice: Choice, subject: Subject | None, gone: str) -> Subject:
    what = f"{'seed' if choice.mode == 'propose' else 'task'} {choice.subject_id}"
    if subject is None:
        raise RunFailed(f"the curriculum chose {what}, which {gone}", hint="start another: selfplay run --new")
    if subject.split != "train":
        raise RunFailed(
            f"the curriculum chose {what}, which is held out",
            hint="nothing held out is ever trained on: set curriculum.choose to another function",
        )
    return subject
