"""A process of the candidate's in a container that stays, and answers a line with a line, over an exec of its own.

Not covered: starting it (`container`), what is asked of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from selfplay.sandbox import ChannelLost, SandboxInfraError
from selfplay.sandbox.channel import Channel, Lost
from selfplay.sandbox.inquest import Inquest


class DockerServed:
    """A process of the candidate's that stays, and answers a line with a line."""

    def __init__(self, channel: Channel, *, inquest: Inquest, ended: Callable[[DockerServed], Awaitable[None]]) -> None:
        """`channel` is that of an agent which became the process; `ended` is told once, when it is closed."""
        self.channel = channel
        self._inquest = inquest
        self._ended = ended
        self._closing: asyncio.Task[None] | None = None

    async def ask(self, line: bytes, *, timeout_seconds: float, limit: int = 1 << 20) -> bytes:
        """Write a line and wait for a line.

        Raises:
            ChannelLost: the process ended, sent too much, or did not answer in time: the candidate's doing.
            SandboxInfraError: engine or sandbox failed by themselves.
            ValueError: there is a line end in `line`.
        """
        if b"\n" in line:
            raise ValueError("a line end in a line")
        if self._closing is not None:
            raise SandboxInfraError("the served process was closed")
        try:
            async with self.channel.until(timeout_seconds):
                await self.channel.stream.write(line, b"\n")
                return await self.channel.stream.line(limit)
        except Lost as lost:
            if not await self._inquest.starved() and lost.how == "ended":
                await self._inquest.settled(self.channel.exec_id)
            raise ChannelLost(f"the served process is lost: {lost}") from lost

    async def close(self) -> None:
        """End it and all it started. Goes on where the caller is cancelled; a second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        self.channel.stream.abort()
        await self._ended(self)
