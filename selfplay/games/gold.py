"""The known answer of a task, as a solver would write it, for credit by what is known of it. Pure.

Not here: what counts as right (each game's `judge`).
"""

from __future__ import annotations

from selfplay.types import Role, Task, record

KNOWING = ("search",)
"""Games whose tasks have one."""


@record
class Gold:
    """How a solver would say it."""

    opens: str
    """What stands before it, which is not scored."""
    answer: str


def knows(solver: Role) -> bool:
    """Can the replies of that role be credited: has it several, and is the answer written between tags?"""
    return solver.game in KNOWING and solver.tools is not None and solver.tools.form == "tags"


def gold_of(task: Task, solver: Role) -> Gold | None:
    """The answer of `task`; None where the game or the role has none."""
    return Gold(opens="<answer>", answer=str(task.payload["answer"])) if knows(solver) else None
