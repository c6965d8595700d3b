"""Where the tools of one episode work: a sandbox that is made when the first of them needs it.

What is covered: making it once, saying when it is not there, closing it whatever happens, and running a program of ours
in it that answers in JSON. What is not covered: what the tools do in it.

Example:
    >>> place = Place(provider, SandboxSpec(name="python"))  # doctest: +SKIP
    >>> (await (await place.sandbox()).exec(["true"], timeout_seconds=5.0)).exit_code  # doctest: +SKIP
    0
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from selfplay.sandbox import Sandbox, SandboxInfraError, SandboxProvider, SandboxSpec
from selfplay.types import Result


class Place:
    """One sandbox, not made before it is needed."""

    def __init__(self, provider: SandboxProvider, spec: SandboxSpec) -> None:
        self.spec = spec
        self.python = provider.python
        self._provider = provider
        self._making: asyncio.Task[Sandbox] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def sandbox(self) -> Sandbox:
        """The sandbox, made now where there is none yet.

        Raises:
            SandboxInfraError: it could not be made, or this was closed.
        """
        if self._closing is not None:
            raise SandboxInfraError("the tools of this episode were closed")
        if self._making is None or (self._making.done() and self._failed(self._making)):
            self._making = asyncio.create_task(self._provider.acquire(self.spec))
        # note: a caller that is cancelled leaves it to be made, and `aclose` closes it.
        return await asyncio.shield(self._making)

    @staticmethod
    def _failed(making: asyncio.Task[Sandbox]) -> bool:
        return making.cancelled() or making.exception() is not None

    async def ask(
        self, program: str, request: Mapping[str, Any], *, seconds: float, limit: int
    ) -> tuple[Mapping[str, Any], Result]:
        """What a program of ours says in the sandbox: the JSON object that it printed, empty where it printed none.

        It runs in the work tree as the candidate, who can slow it down, take its memory or its disk, or end it.

        Raises:
            SandboxInfraError: the machine failed.
        """
        result = await (await self.sandbox()).exec(
            [self.python, "-I", "-S", "-B", "-c", program],
            timeout_seconds=seconds,
            stdin=json.dumps(request).encode(),
            output_limit=limit,
        )
        try:
            found = json.loads(result.stdout) if result.exit_code == 0 and not result.stdout_dropped else {}
        except (ValueError, RecursionError):
            found = {}
        return (found if isinstance(found, dict) else {}), result

    async def aclose(self) -> None:
        """Close the sandbox, if there is one. Goes on where the caller is cancelled; a second call waits."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._making is None:
            return
        await asyncio.wait([self._making])
        if not self._failed(self._making):
            await self._making.result().close()
