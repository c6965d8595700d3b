"""The probes notice what they are there to notice."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Callable

import pytest

from selfplay.sandbox import SandboxProvider, probes
from selfplay.sandbox.probes import BEAT, assert_gone, assert_raises, assert_still, sandbox_of


def test_what_still_writes_is_noticed(with_provider: Callable[..., None]) -> None:
    async def check(provider: SandboxProvider) -> None:
        async with sandbox_of(provider) as sandbox:
            running = asyncio.create_task(sandbox.exec(["sh", "-c", BEAT], timeout_seconds=60.0))
            for _ in range(500):
                await asyncio.sleep(0.01)
                if (await sandbox.exec(["test", "-s", "beat"], timeout_seconds=20.0)).exit_code == 0:
                    break
            with pytest.raises(AssertionError, match="still writes"):
                await assert_still(sandbox)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await assert_still(sandbox)

    with_provider("local", check)


def test_what_goes_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    token = secrets.token_hex(16)
    monkeypatch.setattr(probes, "GONE_TRIES", 3)
    with subprocess.Popen(["sh", "-c", "echo; sleep 60; :", token], stdout=subprocess.PIPE) as process:
        # note: its arguments can be read once it runs, which is a moment after it was started.
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AssertionError, match="goes on"):
            asyncio.run(assert_gone(token))
        process.kill()
    asyncio.run(assert_gone(token))


def test_missing_error_is_noticed() -> None:
    async def fine() -> int:
        return 3

    with pytest.raises(AssertionError, match="ValueError was expected, and came 3"):
        asyncio.run(assert_raises(ValueError, fine()))
