"""A served process on two pipes of this machine: the `Served` of the backends that start one process a command.

A process that ends, answers late or too much is killed at once, because its answers would be out of step with the
questions from then on; what became of the sandbox is asked of the backend, never of the process.

Not covered: starting it and what isolates it (`holder`, `local`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
from collections.abc import Callable

from selfplay.sandbox import ChannelLost, SandboxInfraError
from selfplay.sandbox.process import CHUNK_BYTES, DRAIN_SECONDS, Exit, kill_group


class _Lost(Exception):
    """Ended, or not as agreed; the words are for a person."""


_ENDED = "it ended"


class Piped:
    """A process that answers a line with a line."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        fault: Callable[[], str],
        ended: Callable[[Piped], object],
        kill: Callable[[], object] | None = None,
    ) -> None:
        """`fault` says what is wrong with the sandbox itself, or nothing; `ended` is told once, when it is closed.

        `kill` ends it and all it started; by default its group is killed.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._fault = fault
        self._kill = kill or functools.partial(kill_group, process)
        self._ended = ended
        self._rest = bytearray()
        self._turn = asyncio.Lock()
        self._lost = ""
        self._closing: asyncio.Task[None] | None = None

    async def ask(self, line: bytes, *, timeout_seconds: float, limit: int = 1 << 20) -> bytes:
        """Write a line and wait for a line; questions wait for each other.

        Raises:
            ChannelLost: the process ended, sent too much, or did not answer in time: the candidate's doing.
            SandboxInfraError: the sandbox, or what isolates it, went away by itself; or it was closed.
            ValueError: there is a line end in `line`.
        """
        if b"\n" in line:
            raise ValueError("a line end in a line")
        async with self._turn:
            if self._closing is not None:
                raise SandboxInfraError("the served process was closed")
            if self._lost:
                raise ChannelLost(f"the served process is lost: {self._lost}")
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._write(line + b"\n")
                    return await self._line(limit)
            except TimeoutError:
                self._lost = f"no answer within {timeout_seconds:g} s"
            except _Lost as lost:
                self._lost = str(lost)
                if self._lost == _ENDED and (fault := await self._looked()):
                    raise SandboxInfraError(fault) from None
            except BaseException:
                self._lost = "a question was given up"
                raise
            finally:
                if self._lost:
                    self._kill()
            if self._closing is not None:
                raise SandboxInfraError("the served process was closed while it was asked")
            raise ChannelLost(f"the served process is lost: {self._lost}")

    async def _looked(self) -> str:
        """What is wrong with the sandbox itself, asked once the process outside of it has ended too."""
        if self._process.returncode is None:
            async with Exit(self._process.pid) as exited:
                await asyncio.wait([exited], timeout=DRAIN_SECONDS)
        return "" if self._process.poll() is None else self._fault()

    async def _write(self, payload: bytes) -> None:
        left = memoryview(payload)
        while left:
            try:
                left = left[os.write(self._in, left[:CHUNK_BYTES]) :]
            except BlockingIOError:
                await self._ready(self._in, write=True)
            except OSError:
                raise _Lost(_ENDED) from None

    async def _line(self, limit: int) -> bytes:
        searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end > limit or (end < 0 and len(self._rest) > limit):
                raise _Lost(f"it answered with more than {limit} bytes")
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                return line
            searched = len(self._rest)
            try:
                chunk = os.read(self._out, CHUNK_BYTES)
            except BlockingIOError:
                await self._ready(self._out, write=False)
                continue
            if not chunk:
                raise _Lost(_ENDED)
            self._rest += chunk

    async def _ready(self, fd: int, *, write: bool) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
        add(fd, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            remove(fd)

    def kill(self) -> None:
        """End it and what is in its group at once, from outside; `close` is still owed."""
        self._kill()

    async def close(self) -> None:
        """End it and all it started. Goes on where the caller is cancelled; a second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._kill()
        async with self._turn:
            self._process.wait()
            with contextlib.suppress(TimeoutError, _Lost):
                # note: the pipe ends with the last process that holds it, so its end is the end of all it started.
                async with asyncio.timeout(DRAIN_SECONDS):
                    while True:
                        self._rest.clear()
                        await self._line(1 << 62)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._ended(self)
