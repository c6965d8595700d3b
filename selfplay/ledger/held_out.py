"""What was played on held-out seeds and tasks of them, to look at the weights: stage `evaluate`.

Stage `evaluate` has three users. A warm-up's dev set and the attempts that show what a hint is worth are of train
seeds; an evaluation's subjects are held-out seeds and tasks of them. So the seed's split tells them apart.

What is held out is never played to learn from: `STRAYS` finds where it was.

Not here: figures (`views.evaluation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from selfplay.ledger import unpack
from selfplay.ledger.bulk import Ask
from selfplay.types import Task, record


@record
class HeldOutPlay:
    """One proposal on a held-out seed, or one attempt on a held-out task, and what was decided."""

    side: Literal["proposer", "solver"]
    subject_id: str
    index: int
    """Among the siblings on the same subject, 0-based."""
    valid: bool | None
    """None where nothing was decided, or not yet."""
    passed: bool | None
    """Of attempts. None where nothing was decided, or not yet."""
    owed: bool = False
    """Has it no verdict yet?"""


_TASKS = (
    "SELECT k.* FROM tasks k JOIN seeds s ON s.id = k.seed_id "
    "WHERE k.step = -1 AND k.parent_id IS NULL AND s.split = 'held_out' ORDER BY k.id"
)

_PLAYS = """
SELECT t.subject_id, t.position, k.id IS NULL AS proposed, v.valid, v.passed, v.fault IS NOT NULL AS broken,
    v.stage IS NULL AS owed
FROM trajectories t LEFT JOIN verdicts v ON v.trajectory_id = t.id LEFT JOIN tasks k ON k.id = t.subject_id
JOIN seeds s ON s.id = coalesce(k.seed_id, t.subject_id)
WHERE t.step = ? AND t.stage = 'evaluate' AND t.fault IS NULL AND s.split = 'held_out'
ORDER BY proposed DESC, t.subject_id, t.position
"""


STRAYS: Mapping[str, str] = {
    "SELECT c.step, c.mode, c.subject_id FROM choices c JOIN tasks k ON k.id = c.subject_id "
    "WHERE k.split = 'held_out'": "step {}: a choice to {} the held-out task {}",
    "SELECT t.id, t.step, k.id FROM tasks k CROSS JOIN trajectories t ON t.subject_id = k.id "
    "WHERE k.split = 'held_out' AND t.stage <> 'evaluate'": (
        "attempt {} of step {} was played to learn from, on the held-out task {}"
    ),
    "SELECT t.id, t.step, s.id FROM seeds s CROSS JOIN trajectories t ON t.subject_id = s.id "
    "WHERE s.split = 'held_out' AND t.stage <> 'evaluate'": (
        "proposal {} of step {} was played to learn from, on the held-out seed {}"
    ),
}
"""SQL -> the sentence that its rows fill: what is wrong in a run that played held-out seeds or tasks for training."""


def num_seeds(ask: Ask) -> int:
    """How many seeds are held out."""
    return int(ask("SELECT count(*) AS num FROM seeds WHERE split = 'held_out'")[0]["num"])


def tasks(ask: Ask) -> tuple[Task, ...]:
    """The held-out tasks that were made to be evaluated on, by id."""
    return tuple(unpack.task_of(row) for row in ask(_TASKS))


def plays(ask: Ask, step: int) -> tuple[HeldOutPlay, ...]:
    """What was played with the weights that `step` closed steps gave: proposals first, by subject and index."""
    return tuple(
        HeldOutPlay(
            side="proposer" if row["proposed"] else "solver",
            subject_id=row["subject_id"],
            index=row["position"],
            valid=None if row["owed"] or row["broken"] else bool(row["valid"]),
            passed=None if row["passed"] is None else bool(row["passed"]),
            owed=bool(row["owed"]),
        )
        for row in ask(_PLAYS, step)
    )
