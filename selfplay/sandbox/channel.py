"""One command in a container, over the engine's own socket: fed, read, cut, and ended in time. Blocking.

The deadline is kept inside (`timeout`), because ending the connection does not end the command; the wrapper
kills everything of the candidate's uid when the command is over, so a `setsid` daemon dies with it. Where the
candidate killed the wrapper, exit code 137 tells the caller to run `SWEEP`.

Not covered: making and removing containers, and what an exit code means (`docker`).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfplay.sandbox import SandboxInfraError
from selfplay.sandbox.process import CHUNK_BYTES, Cut
from selfplay.types import record

CANDIDATE = "10001:10001"
"""Who commands run as."""
KEEPER = "10000:10000"
"""Who keeps the container alive: another uid, so that `kill -9 -1` cannot end it and look like our fault."""
SLACK_SECONDS = 15.0
"""How much later than the deadline inside the engine may answer."""
QUIET_SECONDS = 0.5
"""After so long without output the engine is asked whether the command still runs."""

# $1 seconds, $2 folder, the rest the command. `kill -1` spares its caller and other uids. Descriptor 3 keeps
# the command's standard error while the shell's own remarks ("Killed") go nowhere.
_WRAPPER = (
    't=$1; d=$2; shift 2; cd "$d" || exit 125; exec 3>&2 2>/dev/null; '
    'timeout -s KILL "$t" "$@" 2>&3 3>&-; rc=$?; kill -s KILL -- -1; exit $rc'
)
SWEEP = ("sh", "-c", "grep -h '^oom_kill ' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; "
         "kill -s KILL -- -1; exit 0")  # fmt: skip


@record
class Answer:
    """What the engine said of a command."""

    exit_code: int
    stdout: Cut
    stderr: Cut
    seconds: float


def wrapped(argv: Sequence[str], *, timeout_seconds: float, cwd: str) -> list[str]:
    """`argv` under its deadline, followed by the sweep."""
    return ["sh", "-c", _WRAPPER, "sh", f"{timeout_seconds:.3f}", cwd, *argv]


def execute(
    api: Any,
    container: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | None,
    output_limit: int,
    deadline_seconds: float,
) -> Answer:
    """Run `argv` in `container` as the candidate and wait for it.

    Raises:
        SandboxInfraError: no answer within `deadline_seconds`, or a broken stream.
        docker.errors.DockerException: the engine refused.
        OSError: the connection broke.
    """
    start = time.monotonic()
    made = api.exec_create(container, list(argv), stdin=stdin is not None, environment=dict(env), user=CANDIDATE)
    stream = api.exec_start(made["Id"], socket=True)
    connection: socket.socket = getattr(stream, "_sock", stream)
    frames = Frames(output_limit)
    swept = False

    def quiet() -> None:
        """Where the command ended but the stream did not, a stray child holds it: the candidate killed the wrapper."""
        nonlocal swept
        if not swept and not api.exec_inspect(made["Id"])["Running"]:
            swept = True
            api.exec_start(api.exec_create(container, list(SWEEP), user=CANDIDATE)["Id"])

    try:
        _pump(connection, frames, stdin=stdin, until=start + deadline_seconds, quiet=quiet)
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        # note: the file object does not own its socket.
        stream.close()
        connection.close()
    while True:
        state = api.exec_inspect(made["Id"])
        if not state["Running"] and state["ExitCode"] is not None:
            break
        if time.monotonic() > start + deadline_seconds:
            raise SandboxInfraError("the engine's stream ended, but the command did not")
        time.sleep(0.005)
    return Answer(exit_code=state["ExitCode"], stdout=frames.out, stderr=frames.err, seconds=time.monotonic() - start)


def _pump(
    connection: socket.socket, frames: Frames, *, stdin: bytes | None, until: float, quiet: Callable[[], None]
) -> None:
    left = memoryview(stdin or b"")
    connection.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if stdin is not None else 0))
        while True:
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise SandboxInfraError("the engine did not answer in time")
            ready = selector.select(min(remaining, QUIET_SECONDS))
            if not ready:
                quiet()
            for _, events in ready:
                if events & selectors.EVENT_WRITE:
                    left = _send(connection, left)
                    if not left:
                        selector.modify(connection, selectors.EVENT_READ)
                        with contextlib.suppress(OSError):
                            connection.shutdown(socket.SHUT_WR)
                if events & selectors.EVENT_READ:
                    try:
                        chunk = connection.recv(CHUNK_BYTES)
                    except BlockingIOError:
                        continue
                    if not chunk:
                        return
                    frames.add(chunk)


def _send(connection: socket.socket, left: memoryview) -> memoryview:
    """What is still to be sent; nothing where the other side reads no more."""
    try:
        return left[connection.send(left[:CHUNK_BYTES]) :] if left else left
    except BlockingIOError:
        return left
    except OSError:
        return left[:0]


class Frames:
    """Takes the engine's multiplexed stream apart: 8 bytes of head (stream, length), then the payload."""

    def __init__(self, limit: int) -> None:
        self.out, self.err = Cut(limit), Cut(limit)
        self._head = bytearray()
        self._left = 0
        self._stream = self.out

    def add(self, chunk: bytes) -> None:
        """Take in what came, wherever it was cut."""
        view = memoryview(chunk)
        while view:
            if self._left:
                part = view[: self._left]
                self._stream.add(bytes(part))
                self._left -= len(part)
                view = view[len(part) :]
                continue
            need = 8 - len(self._head)
            self._head += view[:need]
            view = view[need:]
            if len(self._head) == 8:
                kind, self._left = struct.unpack(">BxxxI", self._head)
                if kind > 2:
                    raise SandboxInfraError(f"the engine sent a frame of unknown kind {kind}")
                self._stream = self.err if kind == 2 else self.out
                self._head.clear()
