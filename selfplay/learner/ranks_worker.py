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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from selfplay.errors import SelfplayError

POLL_SECONDS = 1.0
CALLS = ("update", "imitate", "start_phase", "pin_reference", "gather", "load")
"""Methods of `Trainer` that all ranks call together."""


def serve(line: Connection, *, rank: int, size: int, meeting: Path) -> None:
    """Meet the others, then do what is asked until the socket closes.

    Raises:
        Exception: whatever fails on this rank alone.
    """
    from selfplay.learner import trainer  # noqa: F401 (what takes time is loaded before the others wait)
    from selfplay.learner.ranks_world import World

    line.send(None)
    world = World.meet(meeting, rank=rank, size=size)
    owner: Any = None
    while True:
        try:
            name, words, named = line.recv()
        except EOFError:
            return
        try:
            if name == "build":
                # note: the old one first, whose memory the new one may need.
                owner = None
                owner = words[0](world=world)
            else:
                assert name in CALLS, name
                getattr(owner, name)(*words, **named)
        except SelfplayError as error:
            # note: this is said before the ranks wait for each other, or after: the others fail alike.
            line.send(str(error))
        else:
            line.send(None)


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
