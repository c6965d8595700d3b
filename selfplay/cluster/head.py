"""The cluster's head: a thread of the driver looks whether it can still be reached, as long as the driver is joined.

Without its head a cluster starts and ends nothing any more, its nodes end a minute later, and Ray then ends the
driver's process wherever it is. So the driver gives up sooner, by itself: whoever uses the cluster is told, once.

A head that is slow still has its connections accepted, by its machine. Not here: where the head is (`joining`), single
actors (`silence`, `remote`). Not covered: a head that hangs and never answers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from selfplay.errors import NotReady

LOOK_SECONDS = 3.0
"""Between two looks."""
ANSWER_SECONDS = 3.0
"""Longest wait for a connection."""
MISSED = 6
"""Looks without a connection, one after the other, after which the head is lost: 18 to 36 seconds."""
HINT = "nothing recorded is lost: start the cluster again (ray start --head), then type the same run command again"

Told = Callable[[NotReady], None]
"""What is called when the head is lost, on a thread of its own."""


def reach(address: str, *, seconds: float) -> None:
    """Connect to `address`, HOST:PORT.

    Raises:
        OSError, OverflowError: nobody answers there in time.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()


class Watch:
    """Looks at the head at `address` until it is closed, or the head is lost."""

    def __init__(self, address: str) -> None:
        self.lost: NotReady | None = None
        self._address = address
        self._told: list[Told] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="cluster-head", daemon=True)
        self._thread.start()

    def tell(self, told: Told) -> None:
        """Have it called at the loss; at once, if that was before."""
        with self._lock:
            self._told.append(told)
        if self.lost is not None:
            told(self.lost)

    def forget(self, told: Told) -> None:
        """Do not call it any more."""
        with self._lock:
            if told in self._told:
                self._told.remove(told)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        missed = 0
        while not self._closed.wait(LOOK_SECONDS):
            try:
                reach(self._address, seconds=ANSWER_SECONDS)
            except OSError as error:
                missed += 1
                if missed >= MISSED:
                    return self._lose(error)
            else:
                missed = 0
        return None

    def _lose(self, error: OSError) -> None:
        sentence = f"the head of the Ray cluster at {self._address} can no longer be reached: {error}"
        with self._lock:
            self.lost = NotReady(sentence, hint=HINT)
            told = list(self._told)
        for call in told:
            call(self.lost)
