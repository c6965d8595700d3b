"""Runs one host process: feeds it, reads it, ends it in time, and leaves nothing of its group behind.

Covered: a deadline, death of the whole process group (before the leader is reaped, so that its number
cannot have been reused), output cut in the middle with byte counts, cancellation, and the same layout of
memory in every process. Linux only: exits are awaited on a pidfd.

Not covered: what isolates the process (the backends), and processes that left the group by `setsid`
(a PID namespace or a sweep ends those).

Example:
    >>> ended = await run_process(["echo", "hi"], timeout_seconds=5.0)
    >>> ended.result().stdout
    'hi\\n'
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from selfplay.owner import Owner as Owner
from selfplay.owner import start_ticks
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.types import Result, record

CHUNK_BYTES = 1 << 18
DRAIN_SECONDS = 1.0
"""How long output may still arrive after the process ended."""
_ADDR_NO_RANDOMIZE, _ASK = 0x0040000, 0xFFFFFFFF
"""Of personality(2): place everything where it always is; change nothing and tell what is set."""


class Cut:
    """Keeps the first and the last half of `limit` bytes of a stream, and counts what lies between."""

    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_room = limit - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes) -> None:
        """Append what was read."""
        self._total += len(chunk)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_room + CHUNK_BYTES:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_room)]

    @property
    def dropped(self) -> int:
        """Bytes cut from the middle."""
        return max(0, self._total - self._head_room - self._tail_room)

    def raw(self) -> bytes:
        """The kept bytes."""
        self._trim()
        return bytes(self._head + self._tail)

    def text(self) -> str:
        """The kept bytes as text (invalid UTF-8 replaced), a line in the middle where some were cut."""
        self._trim()
        if not self.dropped:
            return (self._head + self._tail).decode(errors="replace")
        mark = f"\n[... {self.dropped} bytes cut ...]\n"
        return self._head.decode(errors="replace") + mark + self._tail.decode(errors="replace")


@record
class Ended:
    """A process that is no more."""

    exit_code: int
    """As a shell reports it: 128 + signal where a signal ended it."""
    timed_out: bool
    stdout: Cut
    stderr: Cut
    seconds: float

    def result(self, *, oom_killed: bool = False) -> Result:
        """The record of it; no exit code where the deadline ended it."""
        return Result(
            exit_code=None if self.timed_out else self.exit_code,
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
            seconds=self.seconds,
            timed_out=self.timed_out,
            oom_killed=oom_killed,
            stdout_dropped=self.stdout.dropped,
            stderr_dropped=self.stderr.dropped,
        )


async def run_process(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    output_limit: int = 1 << 20,
    stdin: bytes | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
    started: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> Ended:
    """Run `argv` in a session of its own, and end its process group when it ends, when time is up or on cancellation.

    `stdin` is bytes, or an open file handed over as it is. `started` is told the process (to kill it from outside).

    Raises:
        OSError: `argv[0]` could not be started.
        ValueError: an argument holds a NUL byte.
    """
    start = time.monotonic()
    feed = stdin if isinstance(stdin, bytes) else None
    process = _spawn(argv, stdin=stdin, env=env, cwd=cwd, pass_fds=pass_fds)
    if started is not None:
        started(process)
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _Reader(process.stdout, output_limit), _Reader(process.stderr, output_limit)
    feeder = _Writer(process.stdin, feed) if process.stdin is not None and feed is not None else None
    timed_out = False
    try:
        async with Exit(process.pid) as exited:
            await asyncio.wait([exited], timeout=timeout_seconds)
            timed_out = not exited.done()
            kill_group(process)
            await asyncio.wait([out.closed, err.closed], timeout=DRAIN_SECONDS)
    finally:
        kill_group(process)
        process.wait()
        out.close()
        err.close()
        if feeder is not None:
            feeder.close()
    code = process.returncode
    return Ended(
        exit_code=128 - code if code < 0 else code,
        timed_out=timed_out,
        stdout=out.cut,
        stderr=err.cut,
        seconds=time.monotonic() - start,
    )


def _spawn(
    argv: Sequence[str],
    *,
    stdin: bytes | IO[bytes] | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    source: int | IO[bytes] = subprocess.DEVNULL
    if stdin is not None:
        source = subprocess.PIPE if isinstance(stdin, bytes) else stdin
    return start_process(argv, stdin=source, stderr=subprocess.PIPE, env=env, cwd=cwd, pass_fds=pass_fds)


def start_process(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes],
    stderr: int,
    env: Mapping[str, str] | None,
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, its output a pipe, from a thread that ends with this process only.

    A parent-death signal follows the *thread* that started the child: from a worker thread that ends, or an event
    loop that is run in one, sandboxes would be killed under their users.

    Raises:
        OSError: `argv[0]` could not be started.
        ValueError: an argument holds a NUL byte.
    """
    started = _starter(os.getpid()).submit(
        subprocess.Popen,
        list(argv),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=env,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    return started.result()


@functools.cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """The one thread that starts processes; a fork of this process needs its own."""
    del pid
    return ThreadPoolExecutor(1, thread_name_prefix="selfplay-starter", initializer=fix_layout)


def fix_layout() -> None:
    """What this thread starts from now on finds its memory where every run finds it: personality(2), on Linux alone.

    Before Python 3.12 the hash of None is an address, like that of every function and class, so that the order of a
    set, and with it what a test does and says, would be another in each process. Where the kernel refuses, as in a
    container under its engine's default seccomp profile, it stays so.
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is not None and (now := personality(_ASK)) >= 0:
        personality(now | _ADDR_NO_RANDOMIZE)


def open_archive(path: str) -> IO[bytes]:
    """The archive of a spec, open for reading.

    Raises:
        SandboxInfraError: it cannot be read.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise SandboxInfraError(f"cannot read the archive {path}: {error}") from error


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for the session that `process` leads; nothing once it was reaped (its number may belong to another)."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def limit_argv(spec: SandboxSpec, *, timeout_seconds: float, processes: bool) -> list[str]:
    """The `prlimit` prefix that puts the spec's limits on a process and what it starts.

    RLIMIT_DATA holds private memory; shared mappings fall under the address space, four times as wide because
    threads reserve far more than they use. CPU time is a backstop behind the deadline, a process at a time.
    """
    memory = spec.memory_mb << 20
    argv = [
        "prlimit",
        f"--data={memory}",
        f"--as={4 * memory}",
        f"--fsize={spec.file_mb << 20}",
        f"--cpu={math.ceil(timeout_seconds) + 5}",
        "--nofile=1024",
        "--core=0",
    ]
    if processes:
        argv.append(f"--nproc={spec.pids}")
    return [*argv, "--"]


def orphan_argv(timeout_seconds: float) -> list[str]:
    """The prefix that ends a command by itself, some seconds after the engine would have.

    The kernel's parent-death signal is lost where the parent dies before the child has asked for it.
    """
    return ["timeout", "-s", "KILL", f"{timeout_seconds + 10.0:.3f}"]


def age_of(pid: int) -> float:
    """Seconds since a process of this machine started, by the clock that nobody sets; 0 where it is gone."""
    ticks = start_ticks(pid)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) if ticks else 0.0


class Exit:
    """`async with Exit(pid) as future`: done once the child ended, which stays unreaped until then."""

    def __init__(self, pid: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = os.pidfd_open(pid)
        self._future: asyncio.Future[None] = self._loop.create_future()

    async def __aenter__(self) -> asyncio.Future[None]:
        self._loop.add_reader(self._fd, self._ended)
        return self._future

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _ended(self) -> None:
        self._loop.remove_reader(self._fd)
        if not self._future.done():
            self._future.set_result(None)


class _Reader:
    """Reads a pipe into a `Cut` until its end; `closed` is done there."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        self.cut = Cut(limit)
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._ready)

    def _ready(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self.cut.add(chunk)
        else:
            self.close()

    def close(self) -> None:
        """Stop reading; idempotent."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
        if not self.closed.done():
            self.closed.set_result(None)


class _Writer:
    """Writes bytes into a pipe and closes it; a reader that went away is no error."""

    def __init__(self, pipe: IO[bytes], payload: bytes) -> None:
        self._pipe = pipe
        self._left = memoryview(payload)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._ready)

    def _ready(self) -> None:
        try:
            written = os.write(self._pipe.fileno(), self._left[:CHUNK_BYTES]) if self._left else 0
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._left = self._left[written:]
        if not self._left:
            self.close()

    def close(self) -> None:
        """Close the pipe; idempotent."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            # note: unbuffered on our side (os.write), so closing cannot raise for unwritten bytes.
            self._pipe.close()
