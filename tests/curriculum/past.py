"""A history from a few words, for curricula: `History` served from lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from selfplay.curriculum.history import KnownTask, Played, Proposed
from selfplay.types import Seed


@dataclass
class Past:
    """What was played, as given; the caller keeps it consistent."""

    counts: Mapping[str, int] = field(default_factory=dict)
    tasks: Sequence[KnownTask] = ()
    proposed: Mapping[str, Proposed] = field(default_factory=dict)
    moved: Mapping[int, float] = field(default_factory=dict)
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """(question, since, before) of every question."""

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        return self.counts

    def known_tasks(self, *, since: int, before: int) -> Sequence[KnownTask]:
        self.asked.append(("tasks", since, before))
        return [task for task in self.tasks if since <= task.plays[-1].step < before]

    def proposals(self, *, since: int, before: int) -> Mapping[str, Proposed]:
        self.asked.append(("proposals", since, before))
        return self.proposed

    def movement(self, *, since: int, before: int) -> Mapping[int, float]:
        self.asked.append(("movement", since, before))
        return {step: moved for step, moved in self.moved.items() if since <= step < before}

    def failed_attempts(self, task_id: str, *, before: int) -> Sequence[str]:
        return [f"{task_id}-failed"]


def task(name: str, *plays: tuple[int, int] | tuple[int, int, bool], **other: object) -> KnownTask:
    """A task of eight attempts a play: (step, solved) each, and True where they had a hint."""
    played = tuple(
        Played(step=play[0], decided=8, solved=play[1], hinted=len(play) > 2 and bool(play[2])) for play in plays
    )
    given = {"seed_id": "t0", "role": "solver", "strategy": "", "parent_id": None, "step": played[0].step, **other}
    return KnownTask(id=name, plays=played, **given)  # type: ignore[arg-type]


def proposed(choices: int, decided: int, valid: int, **reasons: int) -> Proposed:
    """What became of a seed's proposals."""
    return Proposed(choices=choices, decided=decided, valid=valid, reasons=reasons)


def seeds(train: int, held_out: int = 0, **payload: object) -> list[Seed]:
    """`t0`, `t1`, ... and `h0`, ...; a function as payload value is called with the index."""
    rows = [("train", i) for i in range(train)] + [("held_out", i) for i in range(held_out)]
    return [
        Seed(
            id=f"{split[0]}{i}",
            game="echo",
            source=f"{split}:{i}",
            payload={key: value(i) if callable(value) else value for key, value in payload.items()},
            split=split,  # type: ignore[arg-type]
        )
        for split, i in rows
    ]
