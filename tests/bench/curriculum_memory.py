"""What the ledger answers a curriculum, from memory: for the simulator, whose plays are not worth a file.

Not here: the learners and their tasks (`curriculum.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from selfplay.curriculum.history import KnownTask, Played, Proposed


class Memory:
    """Serves `History` from memory; every step that was recorded is closed."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.known: dict[str, KnownTask] = {}
        self._by_step: list[list[str]] = []
        self._asked: list[list[tuple[str, int, int]]] = []

    def record(
        self,
        *,
        asked: Sequence[tuple[str, int, int]],
        plays: Sequence[tuple[str, str, Played]],
    ) -> None:
        """Close a step: (seed, decided, valid) of each choice to propose; (task, seed, play) of each group."""
        for seed, _, _ in asked:
            self.counts[seed] = self.counts.get(seed, 0) + 1
        for name, seed, play in plays:
            before = self.known.get(name)
            if before is None:
                before = KnownTask(
                    id=name,
                    seed_id=seed,
                    step=play.step,
                    role="solver",
                    strategy="",
                    parent_id=None,
                    plays=(),
                )
            self.known[name] = replace(before, plays=(*before.plays, play))
        self._by_step.append([name for name, _, _ in plays])
        self._asked.append(list(asked))

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        return self.counts

    def known_tasks(self, *, since: int, before: int) -> Sequence[KnownTask]:
        names = {name for step in self._by_step[since:before] for name in step}
        return sorted((self.known[name] for name in names), key=lambda task: (task.step, task.id))

    def proposals(self, *, since: int, before: int) -> Mapping[str, Proposed]:
        found: dict[str, list[int]] = {}
        for step in self._asked[since:before]:
            for seed, decided, valid in step:
                one = found.setdefault(seed, [0, 0, 0])
                one[0], one[1], one[2] = one[0] + 1, one[1] + decided, one[2] + valid
        return {
            seed: Proposed(choices=c, decided=d, valid=v, reasons={"invalid": d - v} if d > v else {})
            for seed, (c, d, v) in found.items()
        }

    def movement(self, *, since: int, before: int) -> Mapping[int, float]:
        return dict.fromkeys(range(since, min(before, len(self._by_step))), 1.0)

    def failed_attempts(self, task_id: str, *, before: int) -> Sequence[str]:
        task = self.known[task_id]
        return [f"{task_id}/{p.step}" for p in reversed(task.plays) if p.step < before and p.solved < p.decided]
