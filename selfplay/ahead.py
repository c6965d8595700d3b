"""Which steps are played at the same time: the lowest open one, and up to `run.staleness` of those behind it.

Step n begins to play once step n - 1 - staleness is closed. Steps are learnt from and closed in their order, one update
each at most, so a reply is at most `staleness` updates older than the weights that learn from it. With 0 a step begins
when the one before it is closed.

Not here: what playing and learning are (`loop`), what is left out of a batch for its age (`batches`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from selfplay.curriculum import Curriculum
from selfplay.errors import UserError
from selfplay.flow import Interrupted, end
from selfplay.types import Choice

T = TypeVar("T")


class Records(Protocol):
    """What is asked of the ledger."""

    def last_closed_step(self) -> int: ...

    def choices(self, step: int) -> Sequence[Choice]: ...


class Limits(Protocol):
    """How far ahead."""

    @property
    def steps(self) -> int: ...

    @property
    def staleness(self) -> int: ...


class Ahead(Generic[T]):
    """Plays steps ahead of the one that is learnt from; used as a context, which waits for what it began."""

    def __init__(self) -> None:
        self._begun: dict[int, asyncio.Task[T]] = {}

    async def of(self, step: int, limits: Limits, *, play: Callable[[int], Coroutine[Any, Any, T]]) -> T:
        """What `step`, the lowest open one, played; begins it, and those behind it that may begin, where they are not.

        Raises:
            Interrupted: the run is to stop.
            Exception: `step` failed, or one behind it.
        """
        for number in range(step, min(step + 1 + limits.staleness, limits.steps)):
            if number not in self._begun:
                self._begun[number] = asyncio.ensure_future(play(number))
        mine = self._begun[step]
        while not mine.done():
            waiting = [task for task in self._begun.values() if not task.done()]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {mine}:
                if not isinstance(task.exception(), Interrupted | None):
                    task.result()
        return self._begun.pop(step).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Wait for the others where the run is to stop, which ends them; cancel them where it failed."""
        if isinstance(error, Interrupted):
            await asyncio.gather(*self._begun.values(), return_exceptions=True)
        await end(self._begun.values())


def refuse(staleness: int, *, shares_weights: bool, corrected: bool = True) -> None:
    """Playing ahead asks for a sampler with weights of its own, and for a correction of what it sampled.

    Raises:
        UserError: one of them is missing.
    """
    if staleness and shares_weights:
        raise UserError(
            f"run.staleness is {staleness}, and the sampler shares its weights with the learner, which changes them in "
            "place: it cannot sample while they change",
            hint="play and learn in turns: -s run.staleness=0; or sample from a copy: -s policy.backend=vllm",
        )
    if staleness and not corrected:
        raise UserError(
            f"run.staleness is {staleness}, and learner.correction is none: replies of older weights would count as if "
            "the newest had given them",
            hint="-s learner.correction=auto",
        )


def late(curriculum: Curriculum, staleness: int) -> Curriculum:
    """`curriculum`, which looks at steps that are surely closed when a step begins `staleness` steps ahead."""
    # note: a function of somebody's own need not know of it where nothing is played ahead.
    return partial(curriculum, staleness=staleness) if staleness else curriculum


def open_choices(records: Records, step: int, *, staleness: int) -> list[Choice]:
    """What the other steps that may be open beside `step` chose."""
    first = records.last_closed_step() + 1
    others = (number for number in range(first, step + 1 + staleness) if number != step)
    return [choice for number in others for choice in records.choices(number)]
