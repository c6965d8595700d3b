"""An idle buffer of clean, single-use sandboxes, refilled in the background.

A sandbox leaves the pool once and never comes back. Where none is idle, one is made on the spot (a cold start).
Before one is handed out the backend is asked whether it still runs; what is dead, or past half of its time to
live, is closed and the next is taken. Only the specs used last keep idle sandboxes, so that a run over many
archives does not fill the machine.

Not covered: closing what was handed out (its taker does), how many sandboxes a machine bears (the backends).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from typing import Any

from selfplay.errors import SelfplayError
from selfplay.sandbox import Sandbox, SandboxInfraError, SandboxSpec
from selfplay.types import record

SPECS = 4
"""How many specs keep idle sandboxes."""


@record
class PoolCounts:
    """What a pool has done so far."""

    hits: int
    """Taken out of the buffer."""
    misses: int
    """Made on the spot, because nothing clean was idle."""
    discarded: int
    """Closed without use: dead, too old, or of a spec that was not asked for any more."""
    failures: int
    """Refills that failed; whoever asked then was served by a cold start, or got its error."""
    hit_seconds: float
    """In all, over the hits."""
    miss_seconds: float
    """In all, over the misses that succeeded."""
    created: int
    create_seconds: float
    """In all, over the created ones: refills and cold starts."""
    idle: int
    """Clean sandboxes that wait now."""


@dataclasses.dataclass(slots=True)
class _Shelf:
    """The idle sandboxes of one spec."""

    spec: SandboxSpec
    idle: deque[tuple[Sandbox, float]] = dataclasses.field(default_factory=deque)
    """With the time each was made at, the oldest first."""
    refill: asyncio.Task[None] | None = None


class Pool:
    """Hands out clean sandboxes, each once."""

    def __init__(
        self,
        create: Callable[[SandboxSpec], Awaitable[Sandbox]],
        *,
        size: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`size` sandboxes a spec are kept idle; 0 makes every `acquire` a cold start."""
        self._create = create
        self._size = size
        self._clock = clock
        self._shelves: OrderedDict[Hashable, _Shelf] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._counts = dict.fromkeys((field.name for field in dataclasses.fields(PoolCounts)), 0.0)

    @property
    def counts(self) -> PoolCounts:
        """What was done so far, and what is idle now."""
        seconds = {name: value for name, value in self._counts.items() if name.endswith("_seconds")}
        whole = {name: int(value) for name, value in self._counts.items() if name not in seconds}
        idle = sum(len(shelf.idle) for shelf in self._shelves.values())
        return PoolCounts(**{**whole, **seconds, "idle": idle})  # type: ignore[arg-type]

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A clean sandbox of `spec`: an idle one, else one made now; a refill begins either way.

        Labels are no part of what makes two specs equal: an idle sandbox has those of the first request.

        Raises:
            SandboxInfraError, PolicyUnsupported: as the backend's `create`; the pool is closed.
        """
        if self._closing is not None:
            raise SandboxInfraError("the sandbox pool is closed")
        start = time.perf_counter()
        shelf = self._shelf(spec)
        sandbox = await self._taken(shelf)
        kind = "hit" if sandbox is not None else "miss"
        if sandbox is None:
            sandbox = await self._made(spec)
        self._count({"hit": "hits", "miss": "misses"}[kind])
        self._count(f"{kind}_seconds", time.perf_counter() - start)
        self._start_refill(shelf)
        return sandbox

    def _shelf(self, spec: SandboxSpec) -> _Shelf:
        """The shelf of `spec`, now the one used last; the one used longest ago may have to go."""
        key = _key(spec)
        shelf = self._shelves.setdefault(key, _Shelf(spec=spec))
        self._shelves.move_to_end(key)
        while len(self._shelves) > SPECS:
            _, old = self._shelves.popitem(last=False)
            if old.refill is not None:
                old.refill.cancel()
            while old.idle:
                self._discard(old.idle.popleft()[0])
        return shelf

    async def _taken(self, shelf: _Shelf) -> Sandbox | None:
        """The oldest idle sandbox that still is what it was; None where there is none."""
        while shelf.idle:
            sandbox, made = shelf.idle.popleft()
            fresh = 0 <= self._clock() - made <= shelf.spec.ttl_seconds / 2
            try:
                if fresh and await sandbox.alive():
                    return sandbox
            except SandboxInfraError:
                pass
            except BaseException:
                # note: off the shelf and in nobody's hands, so it is closed here.
                self._discard(sandbox)
                raise
            self._discard(sandbox)
        return None

    async def _made(self, spec: SandboxSpec) -> Sandbox:
        start = time.perf_counter()
        sandbox = await self._create(spec)
        self._count("created")
        self._count("create_seconds", time.perf_counter() - start)
        return sandbox

    def _start_refill(self, shelf: _Shelf) -> None:
        # A shelf may have been dropped, or the pool closed, while its sandbox was made.
        kept = any(shelf is one for one in self._shelves.values()) and self._closing is None
        if kept and (shelf.refill is None or shelf.refill.done()):
            shelf.refill = self._background(self._refill(shelf))

    async def _refill(self, shelf: _Shelf) -> None:
        """One after the other, so that refills never take more than one place from those who wait."""
        while len(shelf.idle) < self._size:
            try:
                sandbox = await self._made(shelf.spec)
            except (SelfplayError, OSError):
                # Not raised: the next to ask finds nothing idle, and gets the cold start's own error.
                self._count("failures")
                return
            shelf.idle.append((sandbox, self._clock()))

    def _discard(self, sandbox: Sandbox) -> None:
        """Close it without making anybody wait."""
        self._count("discarded")
        self._background(self._close(sandbox))

    async def _close(self, sandbox: Sandbox) -> None:
        # What cannot be removed now is owed by its provider, which tries again when it is closed itself.
        with contextlib.suppress(SelfplayError, OSError):
            await sandbox.close()

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """End the refills and close what is idle; idempotent, shielded from cancellation."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_all())
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        for shelf in self._shelves.values():
            if shelf.refill is not None:
                # note: a cancelled `create` leaves nothing behind, by contract.
                shelf.refill.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        idle = [sandbox for shelf in self._shelves.values() for sandbox, _ in shelf.idle]
        self._shelves.clear()
        await asyncio.gather(*(self._close(sandbox) for sandbox in idle))

    def _count(self, name: str, by: float = 1) -> None:
        self._counts[name] += by


def _key(spec: SandboxSpec) -> Hashable:
    """What makes two specs equal: all but the labels, and the archive's file as it is now, not its name alone."""
    values: list[Hashable] = [_stamp(spec.archive)]
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name != "labels":
            values.append(tuple(sorted(value.items())) if isinstance(value, Mapping) else value)
    return tuple(values)


def _stamp(archive: str | None) -> Hashable:
    if archive is None:
        return None
    try:
        status = os.stat(archive)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
