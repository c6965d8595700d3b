"""What bubblewrap tells about a command on a pipe of its own, and the end of what it started.

Not covered: the words it uses (`namespaces.told`), commands themselves (`holder`).
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from selfplay.sandbox.namespaces import told


class Status:
    """The pipe on which bubblewrap tells the first process inside, and how the command ended."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._seen = b""

    def started(self) -> None:
        """Bubblewrap has its end: close ours, so that the pipe ends with it."""
        os.close(self.write_end)
        self.write_end = -1

    def told(self, name: str) -> int | None:
        """The number it told under that name so far."""
        with contextlib.suppress(OSError):
            self._seen += os.read(self._read_end, 1 << 16)
        return told(self._seen, name)

    def close(self) -> None:
        """Idempotent."""
        for fd in (self._read_end, self.write_end):
            if fd >= 0:
                os.close(fd)
        self._read_end = self.write_end = -1

    def end(self, mark: str) -> None:
        """Kill the first process inside, and with it all others, where its bubblewrap was ended from outside.

        It dies with its parent by itself, but only once it has asked for that, and the command may be running by then.
        What does not have `mark` among its arguments is another process by now, and is left alone.
        """
        pid = self.told("child-pid")
        if pid is None or self.told("exit-code") is not None:
            return
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)


def namespace_of(pid: int) -> list[int]:
    """The processes that share the PID namespace of `pid`, itself among them."""
    found = []
    with contextlib.suppress(OSError):
        wanted = os.readlink(f"/proc/{pid}/ns/pid")
        if wanted == os.readlink("/proc/self/ns/pid"):
            # It has not entered its own yet.
            return []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdecimal() and os.readlink(f"/proc/{name}/ns/pid") == wanted:
                    found.append(int(name))
    return found
