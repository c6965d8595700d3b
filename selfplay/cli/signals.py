"""Ctrl-C and termination, in two stages: finish the turns in flight, then drop them.

A third Ctrl-C ends the process at once; the ledger stands that, as it stands `kill -9`.

Not here: what stopping means (`loop`, through `events.Interrupt`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from selfplay.events import Interrupt

FIRST = "stopping: turns in flight end first (Ctrl-C again drops them; nothing is lost)"
SECOND = "stopping now: turns in flight are dropped and stay owed"


@contextmanager
def listen(interrupt: Interrupt, *, say: Callable[[str], None]) -> Iterator[None]:
    """Press `interrupt` at each SIGINT and SIGTERM while inside."""

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.level == 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        interrupt.press(signal=number)
        say(FIRST if interrupt.level == 1 else SECOND)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
