"""A short look at how long a backend takes: medians of each operation, beside the floor of a bare process start.

Not covered: throughput, refilling under load, verification; for those see `tests/bench/sandbox.py`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from selfplay.sandbox import SandboxProvider, SandboxSpec
from selfplay.types import record

OPERATIONS = ("create", "acquire", "exec", "put", "get", "close")
_TRUE = "/bin/true"
_FILE = b"x" * 4096
_IN_EACH = 5
"""Commands and files in each sandbox."""


@record
class Latency:
    """Medians in milliseconds."""

    create: float
    acquire: float
    exec: float
    put: float
    get: float
    close: float


def floor_ms(repeats: int = 20) -> float:
    """Median milliseconds of starting a process that does nothing, and waiting for it."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([_TRUE], check=False)
        taken.append(1000 * (time.perf_counter() - started))
    return median(taken)


async def latency(provider: SandboxProvider, *, repeats: int = 5) -> Latency:
    """Make `repeats` sandboxes each way, one after another, and use each a little.

    The pool is filled by a first `acquire`, which is not counted.

    Raises:
        SandboxInfraError: the backend failed.
    """
    taken: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    spec = SandboxSpec(name="python")

    @asynccontextmanager
    async def timed(name: str) -> AsyncIterator[None]:
        started = time.perf_counter()
        yield
        taken[name].append(1000 * (time.perf_counter() - started))

    await (await provider.acquire(spec)).close()
    for number in range(2 * repeats):
        way = OPERATIONS[number % 2]
        async with timed(way):
            sandbox = await (provider.create(spec) if way == "create" else provider.acquire(spec))
        try:
            for _ in range(_IN_EACH):
                async with timed("exec"):
                    await sandbox.exec([_TRUE], timeout_seconds=30.0)
                async with timed("put"):
                    await sandbox.put({"file": _FILE})
                async with timed("get"):
                    await sandbox.get("file", max_bytes=len(_FILE))
        finally:
            async with timed("close"):
                await sandbox.close()
    return Latency(**{name: median(values) for name, values in taken.items()})
