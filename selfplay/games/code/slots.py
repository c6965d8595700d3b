"""Who may run: some at once, or one alone.

Example:
    >>> async with Slots(2).shared():  # doctest: +SKIP
    ...     await work()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Slots:
    """At most `workers` runs at once; one that must be alone waits for the others and keeps them out."""

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._free = asyncio.Semaphore(self._workers)
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Beside others."""
        async with self._free:
            yield

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """With every slot taken."""
        async with contextlib.AsyncExitStack() as stack, self._turn:
            for _ in range(self._workers):
                await stack.enter_async_context(self._free)
            yield
