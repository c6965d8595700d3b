"""The engine's end of the line to the program inside a container (`agent`): requests, replies, its loss.

The line is the hijacked socket of one `docker exec`, read by the event loop; no thread is held while a command runs.
What comes is bounded, and each reply carries the nonce that only the agent was told. Any breach, an end or a silence
is `Lost`; whose fault that is, the engine has to be asked (`container`).

Not covered: making containers, opening the exec (`engine`), and what an exit code means (`container`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from selfplay.sandbox import agent, agent_files, agent_start
from selfplay.types import record

CANDIDATE = f"{agent.UID}:{agent.UID}"
"""Who commands run as."""
KEEPER = "10000:10000"
"""Who keeps the container alive: another uid, so that `kill -9 -1` cannot end it and look like our fault."""
SLACK_SECONDS = 10.0
"""How much later than the deadline inside the agent may answer."""
HELLO_SECONDS = 30.0
SWEEP = ("sh", "-c", "grep -h '^oom_kill ' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; "
         "kill -s KILL -- -1; exit 0")  # fmt: skip
"""What kills all of the candidate's without an agent, and tells how many the kernel has ended for memory."""
_BUFFER_BYTES = 1 << 20
_ABOUT_BYTES = 2000


class Lost(Exception):
    """The line is of no use any more."""

    def __init__(self, how: Literal["ended", "late", "breach"], about: str = "") -> None:
        super().__init__(about or how)
        self.how = how


class Refused(Exception):
    """The agent answered that it cannot; `number` says why (`hardening.ERRORS`)."""

    def __init__(self, number: int, about: str) -> None:
        super().__init__(about)
        self.number = number


@record
class Report:
    """What the agent says of a command."""

    exit_code: int
    late: bool
    seconds: float
    oom_kills: int
    """How many processes the kernel ended for memory meanwhile."""
    swept: int
    """How many processes it left behind."""
    stdout: str
    stderr: str
    stdout_dropped: int
    stderr_dropped: int


@functools.cache
def agent_source() -> str:
    """The agent's parts as one program."""
    parts = (agent_files, agent_start, agent)
    lines = "".join(Path(str(part.__file__)).read_text(encoding="utf-8") for part in parts).splitlines()
    return "\n".join(line for line in lines if not line.startswith("from selfplay."))


def agent_argv(python: str) -> list[str]:
    """The command that starts the agent: no variables, no site, no work tree on its path."""
    return [python, "-I", "-S", "-c", agent_source()]


class Stream:
    """An exec's socket: bytes go in, its standard output comes out of the engine's frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ready = bytearray()
        self._stderr = bytearray()

    @staticmethod
    async def over(connection: socket.socket) -> Stream:
        """Take over a connected socket; it is closed with the stream, or where this fails."""
        try:
            connection.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=connection, limit=_BUFFER_BYTES)
        except BaseException:
            connection.close()
            raise
        return Stream(reader, writer)

    @property
    def ended(self) -> bool:
        """Is it known that nothing will come any more?"""
        return self._writer.is_closing() or self._reader.at_eof() or self._reader.exception() is not None

    @property
    def stderr(self) -> str:
        """The end of what came on standard error."""
        return self._stderr.decode(errors="replace").strip()

    async def write(self, *parts: bytes) -> None:
        """Send; waits while the other side does not read."""
        for part in parts:
            self._writer.write(part)
        await self._writer.drain()

    async def exactly(self, size: int) -> bytes:
        """`size` bytes of standard output.

        Raises:
            Lost: it ended before.
        """
        while len(self._ready) < size:
            await self._frame()
        taken = bytes(memoryview(self._ready)[:size])
        del self._ready[:size]
        return taken

    async def line(self, limit: int) -> bytes:
        """Up to the next line end, which is taken off.

        Raises:
            Lost: it ended, or the line is longer than `limit`.
        """
        seen = 0
        while (end := self._ready.find(b"\n", seen)) < 0:
            seen = len(self._ready)
            if seen > limit:
                break
            await self._frame()
        if end < 0 or end > limit:
            raise Lost("breach", f"a line of more than {limit} bytes")
        taken = bytes(memoryview(self._ready)[:end])
        del self._ready[: end + 1]
        return taken

    async def _frame(self) -> None:
        """The engine's next frame: 8 bytes of head (stream, length), then the payload."""
        try:
            kind, size = struct.unpack(">BxxxI", await self._reader.readexactly(8))
            if kind > 2:
                raise Lost("breach", f"the engine sent a frame of unknown kind {kind}")
            while size:
                chunk = await self._reader.read(min(size, _BUFFER_BYTES))
                if not chunk:
                    raise Lost("ended")
                size -= len(chunk)
                (self._stderr if kind == 2 else self._ready).extend(chunk)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Lost("ended", str(error)) from error
        del self._stderr[:-_ABOUT_BYTES]

    def abort(self) -> None:
        """Close it at once; the program at the other end reads the end of its input."""
        self._writer.transport.abort()


class Channel:
    """One agent, one request at a time."""

    def __init__(self, stream: Stream, exec_id: str) -> None:
        self.stream = stream
        self.exec_id = exec_id
        self._nonce = secrets.token_bytes(16)

    async def hello(self) -> None:
        """Tell the agent its nonce and hear it.

        Raises:
            Lost: it did not start.
        """
        async with self.until(HELLO_SECONDS):
            await self.stream.write(self._nonce)
            await self._reply(most=100, part=None)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | None,
        timeout_seconds: float,
        output_limit: int,
    ) -> Report:
        """Run a command to its end.

        Raises:
            Lost: the agent ended, or did not answer in time.
            Refused: it could not be started.
        """
        fields = [f"{timeout_seconds:.6f}", str(output_limit), *command_fields(argv, cwd=cwd, env=env)]
        most = 2 * output_limit + 200
        reply = await self.ask(b"x", fields, stdin or b"", seconds=timeout_seconds, most=most)
        try:
            return _report(reply)
        except (ValueError, IndexError) as error:
            raise Lost("breach", str(error)) from error

    async def ask(
        self,
        verb: bytes,
        fields: Sequence[str],
        body: bytes = b"",
        *,
        seconds: float,
        most: int = 1 << 16,
        part: Callable[[bytes], object] | None = None,
    ) -> bytes:
        """One request and the last frame of its reply, of at most `most` bytes; `part` is told what comes before it.

        Raises:
            Lost: the agent ended, or did not answer within `seconds` and the slack; the line is closed.
            Refused: the agent cannot.
        """
        head = b"\0".join(map(os.fsencode, fields))
        sizes = len(head).to_bytes(4, "big") + len(body).to_bytes(8, "big")
        async with self.until(seconds + SLACK_SECONDS):
            await self.stream.write(verb + sizes + head, body)
            return await self._reply(most=most, part=part)

    @contextlib.asynccontextmanager
    async def until(self, seconds: float) -> AsyncIterator[None]:
        """A line that was left in the middle of a reply cannot be used again, whoever left it."""
        whole = False
        try:
            async with asyncio.timeout(seconds):
                yield
            whole = True
        except TimeoutError as error:
            raise Lost("late", f"no answer within {seconds:g} s") from error
        except OSError as error:
            raise Lost("ended", str(error)) from error
        except Refused:
            whole = True
            raise
        finally:
            if not whole:
                self.stream.abort()

    async def _reply(self, *, most: int, part: Callable[[bytes], object] | None) -> bytes:
        while True:
            head = await self.stream.exactly(21)
            kind, size = head[16:17], int.from_bytes(head[17:], "big")
            if not secrets.compare_digest(head[:16], self._nonce) or size > (_BUFFER_BYTES if kind == b"+" else most):
                raise Lost("breach", "an answer that is not the agent's")
            payload = await self.stream.exactly(size)
            if kind == b"=":
                return payload
            if kind == b"!":
                number, _, about = payload.decode(errors="replace").partition(" ")
                raise Refused(int(number), about)
            if part is None:
                raise Lost("breach", "a part that nobody asked for")
            part(payload)


def command_fields(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> list[str]:
    """A command as fields of a request.

    Raises:
        ValueError: there is a NUL in it, or no command.
    """
    fields = [cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
    if not argv or any("\0" in field for field in fields):
        raise ValueError("no command, or a NUL byte in it")
    return fields


def put_body(files: Mapping[str, bytes]) -> bytes:
    """Files as the body of a request."""
    parts = []
    for path, content in files.items():
        name = os.fsencode(path)
        parts += [len(name).to_bytes(4, "big") + len(content).to_bytes(8, "big") + name, content]
    return b"".join(parts)


def _report(reply: bytes) -> Report:
    line, _, rest = reply.partition(b"\n")
    code, late, micros, oom_kills, swept, *sizes = map(int, line.split())
    texts: list[tuple[str, int]] = []
    for at in (0, 3):
        head, tail, total = sizes[at : at + 3]
        texts.append(_text(rest[:head], rest[head : head + tail], total))
        rest = rest[head + tail :]
    (stdout, stdout_dropped), (stderr, stderr_dropped) = texts
    return Report(
        exit_code=code,
        late=bool(late),
        seconds=micros / 1e6,
        oom_kills=oom_kills,
        swept=swept,
        stdout=stdout,
        stderr=stderr,
        stdout_dropped=stdout_dropped,
        stderr_dropped=stderr_dropped,
    )


def _text(head: bytes, tail: bytes, total: int) -> tuple[str, int]:
    """As `process.Cut` has it, out of what was kept elsewhere."""
    dropped = total - len(head) - len(tail)
    if not dropped:
        return (head + tail).decode(errors="replace"), 0
    mark = f"\n[... {dropped} bytes cut ...]\n"
    return head.decode(errors="replace") + mark + tail.decode(errors="replace"), dropped
