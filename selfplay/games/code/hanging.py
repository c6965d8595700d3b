"""Tells tests that hang from tests that are slow; the text of this comes before `inside.py`'s in its program.

Tests run in a child, whose parent looks after it: where neither the child nor what it started was given the processor
for so long, and nothing of them waits for it either, they wait for each other, and not for a busy machine. Where the
kernel does not tell (/proc/PID/schedstat), nobody is said to hang.

Not here: a deadline (the sandbox has it). Only the standard library is imported, as little of it as can be.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping

HUNG = 124
"""Exit code of the parent where the child hangs."""
LOOKS = 8
"""How often it is looked before one is said to hang."""


def look_after(*, still: float) -> None:
    """Return in a child; this process ends as the child does, and with `HUNG` where it hangs for `still` seconds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        return
    if ends(child, by=float("inf"), still=still) is None:
        # note: what else there is ends with the sandbox.
        os.kill(child, signal.SIGKILL)
        os._exit(HUNG)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def ends(child: int, *, by: float, still: float) -> bool | None:
    """Does the child end before the clock shows `by`? None where it hangs.

    It stays unburied, so that its number is not another's yet.
    """
    seen, since = None, time.monotonic()
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        left = by - time.monotonic()
        if left <= 0:
            return False
        if signal.sigtimedwait({signal.SIGCHLD}, min(left, still / LOOKS)) is not None:
            continue
        turns, now = turns_of_all(), time.monotonic()
        if turns is None or turns != seen:
            seen, since = turns, now
        elif now - since >= still:
            return None
    return True


def turns_of_all() -> Mapping[str, bytes] | None:
    """Thread -> how often it was given the processor, of all below this process; None where one waits for it or the
    disk, or nobody can tell."""
    found = {}
    try:
        for pid in descendants():
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
                if state in b"RD":
                    return None
                if state != b"Z":
                    with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                        found[thread] = file.read().split()[2]
    except (OSError, IndexError):
        return None
    return found


def descendants() -> Iterator[int]:
    """Processes below this one, which is where the kernel puts orphans that it adopted."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # note: the command's name (second field) may hold spaces and brackets, so count from its end.
            below.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    todo = below.get(os.getpid(), [])
    while todo:
        pid = todo.pop()
        todo += below.get(pid, [])
        yield pid
