"""What a round of a step plays: its recorded choices, or new ones that can be played; what each of them is of.

A step has one round, and more where too few of its groups teach. Every choice of a later round says its round in the
term `round`, so that a run that was killed tells them apart.

A choice is of a seed that is proposed on, of a known task that is attempted again, or of a known task and a failed
attempt on it of which a child is made: at most one level deep, and one child an attempt.

Pure but for what it reads. Not here: choosing (`curriculum`), playing (`stages`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from selfplay.curriculum.needs import missing, needs_of_choices
from selfplay.errors import RunFailed
from selfplay.games import Abilities, Terms
from selfplay.types import Choice, Seed, Task, Trajectory, Verdict, record

Subject = TypeVar("Subject", Seed, Task)
ANOTHER = "set curriculum.choose to another function"


class Records(Protocol):
    """What is asked of the ledger."""

    def task(self, task_id: str) -> Task | None: ...

    def trajectories_by_id(self, ids: Iterable[str]) -> Mapping[str, Trajectory]: ...

    def verdicts_of(self, trajectory_id: str) -> Sequence[Verdict]: ...


@record
class Parent:
    """A task, and the failed attempt on it of which a child is made."""

    task: Task
    attempt: Trajectory


@record
class Subjects:
    """What a round's choices are of, each in their order."""

    seeds: tuple[Seed, ...]
    """To propose on."""
    tasks: tuple[Task, ...]
    """Known ones, to be attempted again."""
    parents: tuple[Parent, ...]


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
            hint=f"{ANOTHER}; presets: selfplay ls",
        )
    for choice in chosen:
        if choice.terms.get("hint") and choice.mode != "replay":
            # note: the first attempts on a task say what its proposal is worth, so they see no hint.
            raise RunFailed(f"the curriculum chose a hint to {choice.mode} on {choice.subject_id}", hint=_NO_HINT)


_NO_HINT = f"only a known task is attempted with a hint: {ANOTHER}"


def terms_of(chosen: Iterable[Choice]) -> dict[str, Terms]:
    """Subject -> what is asked beside it; within a step each subject is chosen once."""
    return {choice.subject_id: choice.terms for choice in chosen}


def unclaimed(chosen: Iterable[Choice], *, by: Iterable[Choice]) -> tuple[Choice, ...]:
    """`chosen` without children of attempts of which steps that are still open, whose choices are `by`, make one."""
    claimed = {_attempt(choice) for choice in by if choice.mode == "mutate"}
    return tuple(one for one in chosen if one.mode != "mutate" or _attempt(one) not in claimed)


def refuse_spent(fresh: Iterable[Choice], records: Records) -> None:
    """A new choice of a child of which the ledger knows already what became of it.

    Raises:
        RunFailed: the attempt that one of them names was chosen before.
    """
    for choice in fresh:
        if choice.mode == "mutate" and any(v.stage == "mint" for v in records.verdicts_of(_attempt(choice))):
            raise RunFailed(f"the curriculum chose attempt {_attempt(choice)} for a child once more", hint=ANOTHER)


def subjects(chosen: Sequence[Choice], seeds: Sequence[Seed], records: Records) -> Subjects:
    """What they are of.

    Raises:
        RunFailed: one of them is not there, is held out, or cannot have a child.
    """
    there = {seed.id: seed for seed in seeds}

    def of(mode: str) -> list[Choice]:
        return [choice for choice in chosen if choice.mode == mode]

    def task(choice: Choice) -> Task:
        return _train(choice, records.task(choice.subject_id), "the ledger does not have")

    return Subjects(
        seeds=tuple(_train(one, there.get(one.subject_id), "its source no longer holds") for one in of("propose")),
        tasks=tuple(task(one) for one in of("replay")),
        parents=tuple(_parent(one, task(one), records) for one in of("mutate")),
    )


def _parent(choice: Choice, task: Task, records: Records) -> Parent:
    """The task with the attempt that the choice names."""
    name = _attempt(choice)
    plays = records.trajectories_by_id([name, *([task.parent_id] if task.parent_id else [])])
    attempt, made_by = plays.get(name), plays.get(task.parent_id or "")
    if made_by is not None and made_by.stage == "attempt":
        raise RunFailed(f"the curriculum chose a child of task {task.id}, which is a child itself", hint=ANOTHER)
    there = attempt is not None and (attempt.stage, attempt.subject_id) == ("attempt", task.id)
    if attempt is None or not there or attempt.step >= choice.step:
        what = f"attempt {name!r} for a child of task {task.id}"
        raise RunFailed(f"the curriculum chose {what}, which no earlier step has", hint=ANOTHER)
    if not any(verdict.stage == "judge" and verdict.passed is False for verdict in records.verdicts_of(name)):
        raise RunFailed(f"the curriculum chose attempt {name} for a child, which did not fail", hint=ANOTHER)
    return Parent(task=task, attempt=attempt)


def _attempt(choice: Choice) -> str:
    return str(choice.terms.get("attempt", ""))


def _train(choice: Choice, subject: Subject | None, gone: str) -> Subject:
    what = f"{'seed' if choice.mode == 'propose' else 'task'} {choice.subject_id}"
    if subject is None:
        raise RunFailed(f"the curriculum chose {what}, which {gone}", hint="start another: selfplay run --new")
    if subject.split != "train":
        raise RunFailed(
            f"the curriculum chose {what}, which is held out",
            hint=f"nothing held out is ever trained on: {ANOTHER}",
        )
    return subject
