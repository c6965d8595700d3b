"""The process of a rank beside the first: `python -m selfplay.learner.ranks_worker FD RANK SIZE MEETING`.

It meets the others and then does what comes through the socket, one call after the other, each answered by None or by
one sentence of why it failed. It ends when the socket closes. Not here: who asks (`ranks`), the work (`trainer`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.errors import SelfplayError

if TYPE_CHECKING:
    from selfplay.learner.ranks_world import World

POLL_SECONDS = 1.0
CALLS = ("update", "imitate", "start_phase", "pin_reference", "gather", "load")
"""Methods of `Trainer` that all ranks call together."""


class Work:
    """What a rank that has met the others does, call by call."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Any = None

    def do(self, name: str, words: Sequence[Any], named: Mapping[str, Any]) -> str | None:
        """None where the call was done, else why not.

        Raises:
            Exception: whatever fails on this rank alone; its process must end, since others wait for its part.
        """
        try:
            if name == "build":
                # note: the old one first, whose memory the new one may need.
                self._owner = None
                self._owner = words[0](world=self._world)
            else:
                assert name in CALLS, name
                getattr(self._owner, name)(*words, **named)
        except SelfplayError as error:
            # note: this is said before the ranks wait for each other, or after: the others fail alike.
            return str(error)
        return None


def serve(line: Connection, *, rank: int, size: int, meeting: Path) -> None:
    """Meet the others, then do what is asked until the socket closes.

    Raises:
        Exception: whatever fails on this rank alone.
    """
    from selfplay.learner import trainer  # noqa: F401 (what takes time is loaded before the others wait)
    from selfplay.learner.ranks_world import World

    line.send(None)
    work = Work(World.meet(meeting, rank=rank, size=size))
    while True:
        try:
            name, words, named = line.recv()
        except EOFError:
            return
        line.send(work.do(name, words, named))


def _orphaned(parent: int) -> None:
    """End with the process that started this one, whatever this one waits for."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


def main(fd: str, rank: str, size: str, meeting: str) -> None:
    """Serve; what breaks is printed, and ends the process at once: others wait for its part of a sum."""
    line = Connection(int(fd))
    threading.Thread(target=_orphaned, args=(os.getppid(),), daemon=True).start()
    try:
        serve(line, rank=int(rank), size=int(size), meeting=Path(meeting))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # note: not through the interpreter's end, which may wait for ranks that are gone.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
