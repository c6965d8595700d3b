"""Whose is what a process makes outside itself, and may leave when it is killed: a sandbox, a half-written folder.

Not here: what is done with what a dead owner left (`sandbox`, `retrieval`).
"""

from __future__ import annotations

import os
import socket

from selfplay.types import record


@record
class Owner:
    """The process that made something. The start time tells a reused process number from its first bearer."""

    host: str
    pid: int
    started: int
    """Clock ticks since boot; 0 where the system does not say."""

    @staticmethod
    def here() -> Owner:
        """This process."""
        return Owner(host=socket.gethostname(), pid=os.getpid(), started=start_ticks(os.getpid()))

    @staticmethod
    def parse(text: str) -> Owner | None:
        """The inverse of `str`; None where `text` is not one."""
        host, _, rest = text.partition(":")
        pid, _, started = rest.partition(":")
        if not (host and pid.isdecimal() and started.isdecimal()):
            return None
        return Owner(host=host, pid=int(pid), started=int(started))

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    def dead(self) -> bool:
        """True only where it is known to have ended: another host's owner is never called dead."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return start_ticks(self.pid) != self.started


def start_ticks(pid: int) -> int:
    """When a process of this machine started, in clock ticks since boot; 0 where it is gone or nobody says."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # note: the name (second field) may hold spaces and brackets, so count from its end.
            return int(stat.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
