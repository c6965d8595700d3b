"""What the conformance checks share: a sandbox for the length of a check, commands, and looks at the host.

Not covered: the checks themselves (`conformance`, `isolation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from selfplay.sandbox import Sandbox, SandboxProvider, SandboxSpec
from selfplay.types import Result

Check = Callable[[SandboxProvider], Awaitable[None]]
SECONDS = 30.0
"""Long enough that no honest command meets it on a busy machine."""
BEAT = "while :; do date +%s.%N > beat; sleep 0.02; done"
"""Shell code that writes into `beat` for as long as it lives."""


GONE_TRIES = 200
"""How often it is looked whether a process is gone, 50 ms apart."""


@asynccontextmanager
async def sandbox_of(provider: SandboxProvider, **spec: Any) -> AsyncIterator[Sandbox]:
    """A sandbox with these fields of its spec, closed at the end."""
    sandbox = await provider.create(SandboxSpec(name="python", **spec))
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def sh(sandbox: Sandbox, script: str) -> Result:
    """Run a shell script."""
    return await sandbox.exec(["sh", "-c", script], timeout_seconds=SECONDS)


async def run_python(sandbox: Sandbox, provider: SandboxProvider, script: str, **more: Any) -> Result:
    """Run a Python script with the sandbox's own interpreter."""
    return await sandbox.exec([provider.python, "-I", "-c", script], timeout_seconds=SECONDS, **more)


async def assert_raises(kind: type[BaseException], what: Awaitable[object]) -> None:
    """`what` raises `kind`."""
    try:
        value = await what
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected, and came {value!r}")


async def assert_still(sandbox: Sandbox) -> None:
    """Nothing runs any more that was started as `BEAT`."""
    before = await sandbox.get("beat", max_bytes=100)
    await asyncio.sleep(0.2)
    assert await sandbox.get("beat", max_bytes=100) == before, "something still writes"


async def assert_gone(token: str) -> None:
    """Within seconds no process of the host has `token` among its arguments."""
    for _ in range(GONE_TRIES):
        if not _on_host(token):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("a process of the sandbox goes on")


def _on_host(token: str) -> bool:
    """Is there a process with `token` among its arguments?"""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False
