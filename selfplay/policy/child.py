"""An engine in a process of its own: started, spoken to in lines of JSON, watched, killed.

`Child.start` gives an engine that has said `ready`; after that it is alive until `gone` holds a sentence that says
why it is not: how it ended with the end of its standard error, or for how long it has said nothing. Whatever waits for
an answer then gets that sentence. Its process group is killed as a whole, so nothing that it started is left.

Not here: what the lines mean (`policy.vllm`), the process itself (`policy.vllm_child`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from selfplay.types import record

Line = Mapping[str, Any]

LONGEST_LINE = 64 << 20
"""Bytes of one line: digests of all tensors are the longest."""
TAIL = 12
"""Lines of standard error that a message carries, at most."""
_GRACE_SECONDS = 5.0


class Gone(Exception):
    """The engine ended or is stuck; the sentence says which and how."""


@record
class Patience:
    """How long an engine may be silent, in seconds."""

    start: float
    """Until it is ready."""
    stall: float
    """While something is awaited."""


class Child:
    """One engine process. Every method runs on the event loop that started it."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes], patience: Patience) -> None:
        self._process = process
        self._log = log
        self._patience = patience
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = time.monotonic()
        self.awaited: Callable[[], int] = lambda: 0
        """How many answers are awaited; silence counts only where there are some."""
        self.gone: str | None = None
        """Why it is not alive; None while it is."""

    @property
    def pid(self) -> int:
        """Of the process, which leads its group."""
        return self._process.pid

    @classmethod
    async def start(
        cls, command: Sequence[str], first: Line, *, environment: Mapping[str, str], patience: Patience
    ) -> tuple[Child, Line]:
        """Start `command FD PARENT`, send it `first`, and wait for its answer.

        Raises:
            Gone: it ended, or did not answer in `patience.start` seconds.
        """
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        with theirs:
            try:
                # note: on this thread, for the process is killed when the thread that started it ends.
                process = subprocess.Popen(  # noqa: ASYNC220
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    env=dict(environment),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                log.close()
                raise Gone(f"{command[0]} cannot be started: {error}") from error
        child = cls(process, log, patience)
        child._reader, child._writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        try:
            child.send(first)
            async with asyncio.timeout(patience.start):
                return child, await child._receive()
        except TimeoutError:
            why = f"it was not ready after {patience.start:g} s{child._tail()}"
            await child.kill()
            raise Gone(why) from None
        except BaseException:
            await child.kill()
            raise

    def listen(self, hear: Callable[[Line], None], lost: Callable[[str], None]) -> None:
        """Hand every further line to `hear`, and to `lost`, once, why there are no more."""
        self._heard = time.monotonic()
        self._tasks = [asyncio.create_task(self._listen(hear, lost)), asyncio.create_task(self._watch())]

    def send(self, line: Line) -> None:
        """Write one line; one that is lost because the process ends is no matter, `lost` is told."""
        self._writer.write(json.dumps(line).encode() + b"\n")

    async def kill(self) -> None:
        """End it and all that it started; idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.to_thread(self._reap)
        self._log.close()

    async def _listen(self, hear: Callable[[Line], None], lost: Callable[[str], None]) -> None:
        try:
            while True:
                hear(await self._receive())
        # note: whatever ends the reader, nobody may go on waiting for what it would have read.
        except Exception as error:  # noqa: BLE001
            self.gone = self.gone or (str(error) if isinstance(error, Gone) else f"it said what is no line: {error!r}")
            self._signal(signal.SIGKILL)
            lost(self.gone)

    async def _receive(self) -> Line:
        try:
            text = await self._reader.readline()
        except ConnectionError:
            # note: where it was killed with our lines unread, the socket is reset and not closed.
            text = b""
        except (OSError, ValueError) as error:
            raise Gone(f"its answer cannot be read ({error}){self._tail()}") from error
        if not text:
            raise Gone(await asyncio.to_thread(self._ended))
        self._heard = time.monotonic()
        line: Line = json.loads(text)
        return line

    async def _watch(self) -> None:
        """Kill it where it says nothing for too long while something is awaited; the reader then tells why."""
        pause, silent, heard = min(1.0, self._patience.stall / 4), 0.0, self._heard
        while True:
            await asyncio.sleep(pause)
            awaited = self.awaited()
            # note: seconds in which this process itself stood still (stopped, suspended) are not the engine's.
            silent = silent + pause if awaited and self._heard == heard else 0.0
            heard = self._heard
            if silent >= self._patience.stall:
                what = "1 answer was" if awaited == 1 else f"{awaited} answers were"
                self.gone = f"it said nothing for {self._patience.stall:g} s while {what} awaited{self._tail()}"
                self._signal(signal.SIGKILL)
                return

    def _ended(self) -> str:
        """How it ended, in words; it has closed its socket."""
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it closed its socket and did not end{self._tail()}"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"it {how}{self._tail()}"

    def _tail(self) -> str:
        """The end of its standard error, for a message."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 8192))
        lines = self._log.read().decode(errors="replace").splitlines()
        kept = [line.rstrip()[:300] for line in lines if line.strip()][-TAIL:]
        return "".join(["; the end of its standard error:", *(f"\n    {line}" for line in kept)]) if kept else ""

    def _reap(self) -> None:
        """It ends by itself when its socket closes; what has not is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if self.gone else _GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # note: the group outlives its leader where the engine started processes of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
