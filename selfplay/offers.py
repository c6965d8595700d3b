"""New tasks on their way from whoever makes them to whoever attempts them.

A task goes out when it is committed, which happens in submission order; so what is attempted, and in which order the
attempts come back, does not depend on what finished first.

Not here: making and attempting (`stages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfplay.flow import Feed
from selfplay.games import Terms
from selfplay.stages import Played
from selfplay.types import Task


class NewTasks:
    """The tasks of one round of a step; each goes out once a step.

    Known tasks go out at once. Their attempts come back in this order all the same: of proposals, of children, of known
    tasks.
    """

    def __init__(
        self,
        known: Sequence[Task],
        terms: Mapping[str, Terms],
        *,
        attempted: Sequence[Played],
        helped: Sequence[Played],
    ) -> None:
        """`terms`: seed or known task -> what is asked beside it; `attempted` and `helped` are of earlier rounds."""
        self.terms = dict(terms)
        """With those of new tasks: what the choice of what each was made from says, the first maker's."""
        self._gone = {played.trajectory.subject_id for played in attempted}
        self._helped = {played.trajectory.subject_id for played in helped}
        self._known = [task for task in known if task.id not in self._gone]
        self._made: list[Task] = []
        self.all = Feed(self._known)
        self.proposed: Feed[Task] = Feed()
        """Without children and known tasks."""

    def take(self, played: Played) -> None:
        """Pass on what a proposal or a failed attempt became, unless it went out before."""
        task, trajectory = played.task, played.trajectory
        if task is None:
            return
        if trajectory.subject_id in self.terms:
            self.terms.setdefault(task.id, self.terms[trajectory.subject_id])
        if task.id not in self._gone:
            self._gone.add(task.id)
            self._made.append(task)
            self.all.put(task)
        if trajectory.stage == "propose" and task.id not in self._helped:
            self._helped.add(task.id)
            self.proposed.put(task)

    def close(self) -> None:
        """Nothing more is made."""
        self.all.close()
        self.proposed.close()

    def in_order(self, attempts: Sequence[Played]) -> list[Played]:
        """`attempts` in submission order."""
        place = {task.id: i for i, task in enumerate((*self._made, *self._known))}
        return sorted(attempts, key=lambda played: place[played.trajectory.subject_id])
