"""Signs of life of the learner's ranks: a thread of the driver asks each for one, whatever the ranks and the driver do.

A rank that waits for another inside an update waits for what comes over a connection, and a machine that vanished
closes none. So every actor answers `RankNode.alive` on a thread that has nothing else to do: one that is slow answers
late, one that is gone never does. After `SILENT` waits without an answer it is lost: the connections of all ranks to
this process are cut here, and what waited on them fails at once.

Waits are counted and no clock is read: a driver that was itself stopped for an hour has waited once. Not here: what
becomes of the run (`again`), the cluster's head (`joining`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from selfplay.cluster.connections import End, cut
from selfplay.cluster.remote import short
from selfplay.errors import NotReady
from selfplay.learner.ranks import HINT, LearnerLost

GROUP = "signs"
"""Ray's name of the thread that an actor has for it."""
WAIT_SECONDS = 5.0
"""Between two signs of life, and longest wait for one before it is counted as missing."""
SILENT = 12
"""Missing signs, one after the other, of an actor that is lost: a minute."""


class Signs:
    """Of some actors, by their numbers; the thread ends with `close`."""

    def __init__(self) -> None:
        self.lost: LearnerLost | None = None
        """The first loss; it stays."""
        self._actors: dict[int, Any] = {}
        self._known: set[End] = set()
        self._closed = threading.Event()
        self._losing = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="signs-of-life", daemon=True)

    def begin(self, actors: Mapping[int, Any]) -> None:
        """Ask these, number -> handle, from now on."""
        self._actors = dict(actors)
        self._thread.start()

    def know(self, ends: Iterable[End]) -> None:
        """These are the ranks' ends of connections, too."""
        with self._losing:
            self._known.update(ends)

    def close(self) -> None:
        """Ask nobody any more; idempotent."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def lose(self, why: str) -> None:
        """From now on the learner is lost, and what waits for a rank fails."""
        with self._losing:
            if self.lost is None and not self._closed.is_set():
                self.lost = LearnerLost(why, hint=HINT)
                cut(self._known)

    def headless(self, error: NotReady) -> None:
        """The cluster's head is lost, and the learner with it."""
        self.lose(error.message)

    def _watch(self) -> None:
        asked: dict[int, Any] = {}
        missing = dict.fromkeys(self._actors, 0)
        while not self._closed.is_set() and self.lost is None:
            try:
                self._wait(asked, missing)
            except Exception as error:  # noqa: BLE001 (nobody else would notice that nobody watches)
                self.lose(f"the ranks of the learner cannot be asked any more ({short(error)})")

    def _wait(self, asked: dict[int, Any], missing: dict[int, int]) -> None:
        """Once for an answer of each, no longer than `WAIT_SECONDS`."""
        import ray

        for number in self._actors.keys() - asked.keys():
            asked[number] = self._actors[number].alive.options(concurrency_group=GROUP).remote()
        ready, silent = ray.wait(list(asked.values()), num_returns=len(asked), timeout=WAIT_SECONDS)
        for number, answer in list(asked.items()):
            heard = answer in ready and self._heard(number, asked.pop(number))
            missing[number] = 0 if heard else missing[number] + 1
            if missing[number] >= SILENT:
                self.lose(f"rank {number} of the learner gave no sign of life for {SILENT * WAIT_SECONDS:g} s")
        if not silent:
            self._closed.wait(WAIT_SECONDS)

    def _heard(self, number: int, answer: Any) -> bool:
        """Take an answer; False where it says that the actor cannot be reached now."""
        import ray

        try:
            self.know(ray.get(answer, timeout=WAIT_SECONDS))
        except ray.exceptions.ActorUnavailableError:
            return False
        except ray.exceptions.RayError as error:
            self.lose(f"rank {number} of the learner is lost ({short(error)})")
        return True
