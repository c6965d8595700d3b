"""How jobs of stages wait for one another: a feed between two of them, results in order, several side by side.

    Feed        what one stage makes and another works on, in order, until it is closed
    in_order    jobs at the same time, their results handed on in the order in which they came
    together    several stages at the same time

Where the run is asked to stop, what is in flight ends and nothing new begins; any other failure cancels the rest.

Not here: what the jobs are (`stages`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from selfplay.events import Interrupt

T = TypeVar("T")


class Interrupted(Exception):
    """The run was asked to stop; what was not recorded stays owed."""


class Feed(Generic[T]):
    """What one stage puts in and another takes out, in order; unbounded, since whoever takes decides what it begins."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        """With `items` in it already."""
        self._line: asyncio.Queue[tuple[T] | None] = asyncio.Queue()
        for item in items:
            self.put(item)

    def put(self, item: T) -> None:
        """Add one at the end."""
        self._line.put_nowait((item,))

    def close(self) -> None:
        """Nothing more will come."""
        self._line.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[T]:
        """Each item, once; ends when the feed is closed."""
        while (found := await self._line.get()) is not None:
            yield found[0]


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    """`items`, for whoever takes what comes one after the other."""
    for item in items:
        yield item


async def in_order(
    jobs: AsyncIterable[Callable[[], Awaitable[T]]],
    commit: Callable[[T | None], list[T]],
    interrupt: Interrupt,
) -> list[T]:
    """Run `jobs` as they come, hand each result to `commit` in their order, and return what it returns.

    `commit(None)` closes the row. When one job fails the others are cancelled, but for `Interrupted`,
    which lets those in flight finish and commits no later one; at interrupt level 2 everything is cancelled.
    """
    tasks: list[asyncio.Future[T]] = []
    row: asyncio.Queue[asyncio.Future[T] | None] = asyncio.Queue()

    async def begin() -> None:
        try:
            async for job in jobs:
                tasks.append(asyncio.ensure_future(job()))
                row.put_nowait(tasks[-1])
        finally:
            row.put_nowait(None)

    beginner = asyncio.ensure_future(begin())
    watcher = asyncio.ensure_future(_cancel_at_level_two(tasks, interrupt))
    results: list[T] = []
    interrupted = False
    try:
        while (task := await row.get()) is not None:
            try:
                result = await task
            except Interrupted:
                interrupted = True
                continue
            except asyncio.CancelledError:
                if interrupt.level < 2:
                    raise
                interrupted = True
                continue
            # note: what comes after a gap stays owed, since an uninterrupted run would commit the gap first.
            if not interrupted:
                results.extend(commit(result))
        await beginner
        if interrupted:
            raise Interrupted
        results.extend(commit(None))
        return results
    finally:
        await end((beginner, watcher, *tasks))


async def together(*jobs: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all `jobs`, which run at the same time; the first failure cancels the others.

    Raises:
        Interrupted: the run is to stop; every job had ended by itself.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, Interrupted):
                    raise error
        return [task.result() for task in tasks]
    finally:
        await end(tasks)


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what has not ended, and wait for it."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _cancel_at_level_two(tasks: Iterable[asyncio.Future[Any]], interrupt: Interrupt) -> None:
    while interrupt.level < 2:  # noqa: ASYNC110 (a signal handler may only set a number)
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
