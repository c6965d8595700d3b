"""Results that are made once: whoever asks for the same key meanwhile waits for the one that is being made.

What is not covered: results that outlive the process, and what was raised: the next one to ask tries again.

Example:
    >>> once: Once[int] = Once(most=2)
    >>> async def make() -> int:
    ...     return 4
    >>> asyncio.run(once.get("key", make))
    4
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """The results of the last `most` keys that were asked for."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._made: OrderedDict[str, T] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` gives for `key`, or gave. What it raises is raised, and not kept."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._made:
                self._made[key] = await make()
            self._made.move_to_end(key)
            found = self._made[key]
        while len(self._made) > self._most:
            self._locks.pop(self._made.popitem(last=False)[0], None)
        return found
