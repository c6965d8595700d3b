"""The program inside a container: runs one command after the other as the candidate, over its standard streams.

Sent as source to the image's own interpreter (`python -I -S -c`), so that an image needs nothing of selfplay; few
modules are imported, for the time to start. It leads no command's session, cannot be traced or read by processes of
its own uid, inherits the orphans of its commands, and kills and reaps all that is left when a command ends. It can
still be killed or stopped by the candidate: then `container` asks the engine, and opens another one.

    request   verb (1 byte), length of head (4), length of body (8), head (fields with NUL between), body
    reply     nonce (16, the first bytes that were read), kind (1), length (4), payload
    kinds     `+` a part of what is asked for, `=` done, `!` refused (`44 message`: the number says why)

Not covered: files (`agent_files`) and starting a command (`agent_start`), both sent along; what limits and isolates
it (the container), and who is to blame when it goes away (`container`).
"""

import os
import select
import sys
import time

from selfplay.sandbox.agent_files import get, put
from selfplay.sandbox.agent_start import DUMPABLE, SUBREAPER, become, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    # note: known to type checkers by this name; `typing` and `collections` would cost milliseconds.
    from collections.abc import Callable
    from typing import NoReturn

    Sink = Callable[[bytes], None]

UID = 10001
CHUNK_BYTES = 1 << 16
GONE_SECONDS = 5.0
"""How long killed processes may take to go."""
_KILL = 9
_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class Kept:
    """The first and the last half of `limit` bytes of a stream, and how many there were."""

    def __init__(self, limit: int) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0
        self._room = (limit + 1) // 2
        self._tail_room = limit - self._room

    def add(self, chunk: bytes) -> None:
        """Append what was read."""
        self.total += len(chunk)
        room = self._room - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        self.tail += chunk
        if len(self.tail) > 2 * self._tail_room + CHUNK_BYTES:
            self.trim()

    def trim(self) -> None:
        """Let go of what lies before the last half."""
        del self.tail[: max(0, len(self.tail) - self._tail_room)]


class Line:
    """The engine at the other end."""

    def __init__(self) -> None:
        self._nonce = b""
        self.left = 0
        """Bytes of the request's body that were not read yet."""

    def begin(self) -> None:
        """Learn the nonce, and answer with it."""
        self._nonce = self._exactly(16)
        self.done(b"ready")

    def request(self) -> tuple[bytes, list[bytes]]:
        """The next verb with its fields; leaves when the engine has gone."""
        start = self._exactly(13)
        head = self._exactly(int.from_bytes(start[1:5], "big"))
        self.left = int.from_bytes(start[5:], "big")
        return start[:1], head.split(b"\0")

    def body(self, most: int) -> bytes:
        """At least one and at most `most` bytes of the body; none at its end."""
        if not self.left:
            return b""
        chunk = os.read(0, min(most, self.left, CHUNK_BYTES))
        if not chunk:
            leave()
        self.left -= len(chunk)
        return chunk

    def exactly(self, size: int) -> bytes:
        """`size` bytes of the body."""
        parts = []
        while size:
            parts.append(self.body(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def skip(self) -> None:
        """Read the rest of the body away, so that the next request begins where it should."""
        while self.body(CHUNK_BYTES):
            pass

    def say(self, kind: bytes, payload: bytes) -> None:
        """Send a frame."""
        view = memoryview(self._nonce + kind + len(payload).to_bytes(4, "big") + payload)
        while view:
            view = view[os.write(1, view) :]

    def part(self, payload: bytes) -> None:
        """Send a part of what was asked for."""
        self.say(b"+", payload)

    def done(self, payload: bytes = b"") -> None:
        """End the reply."""
        self.say(b"=", payload)

    @staticmethod
    def _exactly(size: int) -> bytes:
        got = b""
        while len(got) < size:
            chunk = os.read(0, size - len(got))
            if not chunk:
                leave()
            got += chunk
        return got


def leave() -> "NoReturn":
    """The engine has gone, or something will not die: end everything, this program too."""
    kill_all()
    os._exit(0)


def kill_all() -> None:
    """SIGKILL for all that runs as this uid but this program."""
    try:  # noqa: SIM105
        os.kill(-1, _KILL)
    except ProcessLookupError:
        pass


def sweep() -> dict[int, int]:
    """Kill all that runs as this uid but this program, and wait until it is gone; exit status by process number."""
    ended: dict[int, int] = {}
    until = time.monotonic() + GONE_SECONDS
    kill_all()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid:
            ended[pid] = status
            continue
        if time.monotonic() > until:
            leave()
        time.sleep(0.0003)
        # note: again, for what was forked by a process that the first signal had not reached.
        kill_all()


def oom_kills() -> int:
    """How many processes of the container the kernel has ended for memory so far."""
    for path in _COUNTERS:
        try:
            with open(path, "rb", buffering=0) as file:
                for line in file.read().splitlines():
                    name, _, number = line.partition(b" ")
                    if name == b"oom_kill":
                        return int(number)
        except OSError:
            continue
    return 0


class Command:
    """One command: started, fed, read, ended."""

    def __init__(self, line: Line, argv: list[bytes], *, cwd: bytes, env: dict[bytes, bytes]) -> None:
        self._line = line
        self._start = time.monotonic()
        feed = os.pipe() if line.left else (os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), -1)
        out, err = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for number, fd in enumerate((feed[0], out[1], err[1])):
                os.dup2(fd, number)
            become(argv, cwd=cwd, env=env)
        for fd in (feed[0], out[1], err[1]):
            os.close(fd)
        self._feed, self._out, self._err = feed[1], out[0], err[0]
        self._poll = select.poll()
        self._exit = os.pidfd_open(self.pid)
        self._poll.register(self._exit, select.POLLIN)
        self._waiting = b""

    def run(self, *, seconds: float, out: "Sink", err: "Sink") -> tuple[int, bool]:
        """Until it ends or its time is over: (microseconds that it took, was it too long?). What it left is killed."""
        sinks = {self._out: out, self._err: err}
        for fd in (self._out, self._err, self._feed):
            if fd >= 0:
                os.set_blocking(fd, False)
        for fd in sinks:
            self._poll.register(fd, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        late = False
        while True:
            remaining = self._start + seconds - time.monotonic()
            late = remaining <= 0
            ready = dict(self._poll.poll(remaining * 1000 + 1)) if not late else {}
            if late or self._exit in ready:
                break
            for fd in ready:
                if fd in sinks and not self._read(fd, sinks[fd]):
                    self._poll.unregister(fd)
            if self._feed in ready:
                self._write()
            if 0 in ready:
                self._take()
        taken = int((time.monotonic() - self._start) * 1e6)
        self._ended = sweep()
        for fd, sink in sinks.items():
            while self._read(fd, sink):
                pass
        for fd in (self._out, self._err, self._feed, self._exit):
            if fd >= 0:
                os.close(fd)
        self._line.skip()
        return taken, late

    @property
    def code(self) -> int:
        """As a shell has it: 128 + the signal's number where a signal ended it."""
        code = os.waitstatus_to_exitcode(self._ended[self.pid])
        return code if code >= 0 else 128 - code

    @property
    def swept(self) -> int:
        """How many processes it left behind."""
        return len(self._ended) - 1

    @staticmethod
    def _read(fd: int, sink: "Sink") -> bool:
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        sink(chunk)
        return bool(chunk)

    def _take(self) -> None:
        """Something came from the engine while a command runs: more of its input, or its going away."""
        if not self._line.left:
            leave()
        self._waiting = self._line.body(CHUNK_BYTES)
        if self._feed >= 0:
            self._poll.unregister(0)
            self._poll.register(self._feed, select.POLLOUT)

    def _write(self) -> None:
        try:
            self._waiting = self._waiting[os.write(self._feed, self._waiting) :]
        except BlockingIOError:
            return
        except OSError:
            # It reads no more; the rest goes nowhere.
            self._waiting = b""
            self._end_feed()
            self._poll.register(0, select.POLLIN)
            return
        if not self._waiting:
            if self._line.left:
                self._poll.unregister(self._feed)
            else:
                self._end_feed()
            self._poll.register(0, select.POLLIN)

    def _end_feed(self) -> None:
        self._poll.unregister(self._feed)
        os.close(self._feed)
        self._feed = -1


def run(line: Line, fields: list[bytes]) -> None:
    """Run a command and report on it: its code and numbers in one line, then both streams, cut in the middle."""
    seconds, limit = float(fields[0]), int(fields[1])
    cwd, argv, env = command_of(fields[2:])
    before = oom_kills()
    command = Command(line, argv, cwd=cwd, env=env)
    out, err = Kept(limit), Kept(limit)
    taken, late = command.run(seconds=seconds, out=out.add, err=err.add)
    numbers = [command.code, int(late), taken, oom_kills() - before, command.swept]
    for kept in (out, err):
        kept.trim()
        numbers += [len(kept.head), len(kept.tail), kept.total]
    line.done(" ".join(map(str, numbers)).encode() + b"\n" + out.head + out.tail + err.head + err.tail)


def command_of(fields: list[bytes]) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    """Folder, number of arguments, arguments, variables -> folder, arguments, variables."""
    count = int(fields[1])
    env = dict(pair.split(b"=", 1) for pair in fields[2 + count :])
    return fields[0], fields[2 : 2 + count], env


def pipe(line: Line, fields: list[bytes]) -> None:
    """Run a program of ours (tar) over the body; what it prints goes out as it comes."""
    cwd, argv, env = command_of(fields[1:])
    command = Command(line, argv, cwd=cwd, env=env)
    err = Kept(1000)
    _, late = command.run(seconds=float(fields[0]), out=lambda chunk: line.part(chunk) if chunk else None, err=err.add)
    line.done(b"%d %d\n" % (command.code, late) + err.head + err.tail)


def others() -> int:
    """How many processes of this uid there are beside this one, children of others included."""
    found = 0
    for name in os.listdir("/proc"):
        try:
            found += name.isdecimal() and os.stat(f"/proc/{name}").st_uid == UID
        except OSError:
            continue
    return found - 1


def swept(line: Line, fields: list[bytes]) -> None:
    """Kill all that runs beside this program, and tell how many there were."""
    found = others()
    sweep()
    until = time.monotonic() + GONE_SECONDS
    while others() > 0 and time.monotonic() < until:
        # note: what was not started from here is another's to reap.
        time.sleep(0.001)
    line.done(b"%d" % found)


def turn(line: Line, fields: list[bytes]) -> None:
    """Be a command from now on, on the same streams; its standard error is dropped."""
    cwd, argv, env = command_of(fields)
    prctl(SUBREAPER, 0)
    line.done()
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    become(argv, cwd=cwd, env=env)


VERBS = {b"x": run, b"p": pipe, b"g": get, b"w": put, b"s": swept, b"t": turn}


def main() -> None:
    """Answer until the engine goes away."""
    if os.getuid() != UID:
        # Anywhere else the sweep would end what is not the candidate's.
        sys.exit(f"the agent runs as uid {UID} only, inside a sandbox")
    prctl(DUMPABLE, 0)
    prctl(SUBREAPER, 1)
    line = Line()
    line.begin()
    while True:
        verb, fields = line.request()
        try:
            VERBS[verb](line, fields)
        except (OSError, ValueError) as error:
            kinds = ((FileNotFoundError, 44), (PermissionError, 45), (ValueError, 46), (OSError, 47))
            number = next(number for kind, number in kinds if isinstance(error, kind))
            line.skip()
            line.say(b"!", f"{number} {error}".encode(errors="replace"))


if __name__ == "__main__":
    main()
