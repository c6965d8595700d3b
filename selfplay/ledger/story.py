"""All that a run recorded about one task: who proposed it, when it was chosen, how it was solved, what came of it.

Every question is answered by an index on the task (its choices, its attempts, its proposals), so its cost follows what
was done with this task and not the run's length. Turns and blobs are not read.

Not here: what the curriculum believes about it (`selfplay.curriculum`), layout (`views.why`).
"""

from __future__ import annotations

from collections.abc import Mapping

from selfplay.ledger import unpack
from selfplay.ledger.bulk import Ask
from selfplay.types import Choice, Seed, Stage, Task, record


@record
class Claim:
    """A proposal, or a failed attempt on another task, that made the task or turned out to be it."""

    id: str
    stage: Stage
    """`propose` or `attempt`."""
    step: int
    """In which it was played: a child's attempt is older than the child."""
    role: str
    subject_id: str
    """The seed, or the task that was attempted."""
    valid: bool
    reason: str
    """Of the mint."""
    why: str
    """Of the mint."""
    reward: float | None
    """What the proposal was paid; None where nothing was decided, and for an attempt, which is not paid for a child."""
    paid_why: str
    """Of the grade; empty where there is none yet."""
    advantage: float | None
    """None where it is in no group, and for an attempt."""


@record
class Round:
    """The attempts on the task in one step."""

    step: int
    role: str
    closed: bool
    played: int
    decided: int
    solved: int


@record
class Child:
    """A task that was made of this one."""

    id: str
    step: int
    decided: int
    solved: int


@record
class Story:
    """One task's records."""

    task: Task
    seed: Seed | None
    asked: Choice | None
    """The choice that it was made for; None for a given task."""
    parent_id: str | None
    """The task that it is a child of."""
    claims: tuple[Claim, ...]
    """By step; the one that minted it has the id `task.parent_id`."""
    choices: tuple[Choice, ...]
    """To replay it or to make a child of it, by step."""
    rounds: tuple[Round, ...]
    """By step."""
    children: tuple[Child, ...]
    refused: Mapping[str, int]
    """Reason code -> failed attempts that became no child."""


def beginning(ask: Ask, prefix: str, *, limit: int) -> tuple[str, ...]:
    """Ids of the tasks that begin so, in order, at most `limit`."""
    sql = "SELECT id FROM tasks WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
    rows = ask(sql, prefix, prefix + "\U0010ffff", limit)
    return tuple(row["id"] for row in rows)


def minted_by(ask: Ask, trajectory_id: str) -> str | None:
    """The task that a proposal or a failed attempt made or found; None where it became none."""
    rows = ask("SELECT task_id FROM verdicts WHERE trajectory_id = ? AND stage = 'mint'", trajectory_id)
    return rows[0]["task_id"] if rows else None


def story(ask: Ask, task_id: str) -> Story:
    """Everything about the task of that id, which exists."""
    (row,) = ask("SELECT * FROM tasks WHERE id = ?", task_id)
    task = unpack.task_of(row)
    seeds = ask("SELECT * FROM seeds WHERE id = ?", task.seed_id)
    claims = tuple(
        Claim(**{**{name: row[name] for name in _CLAIMED}, "valid": bool(row["valid"])})
        for row in ask(_CLAIMS, task_id)
    )
    minted = next((claim for claim in claims if claim.id == task.parent_id), None)
    asked = ask(_ASKED, task.step, minted.subject_id) if minted is not None else []
    return Story(
        task=task,
        seed=unpack.seed_of(seeds[0]) if seeds else None,
        asked=unpack.choice_of(asked[0]) if asked else None,
        parent_id=minted.subject_id if minted is not None and minted.stage == "attempt" else None,
        claims=claims,
        choices=tuple(unpack.choice_of(row) for row in ask(_CHOSEN, task_id)),
        rounds=tuple(
            Round(**{**{name: row[name] for name in _ROUND}, "closed": bool(row["closed"])})
            for row in ask(_ROUNDS, task_id)
        ),
        children=tuple(
            Child(**{name: row[name] for name in ("id", "step", "decided", "solved")})
            for row in ask(_CHILDREN, task_id)
        ),
        refused={row["reason"]: row["num"] for row in ask(_REFUSED, task_id)},
    )


_CLAIMED = ("id", "stage", "step", "role", "subject_id", "reason", "why", "reward", "paid_why", "advantage")
_ROUND = ("step", "role", "played", "decided", "solved")
_CLAIMS = """
SELECT t.id, t.stage, t.step, t.role, t.subject_id, m.valid, m.reason, m.why, g.reward, coalesce(g.why, '') AS paid_why,
    (SELECT a.advantage FROM group_members a WHERE a.trajectory_id = t.id AND t.stage = 'propose' LIMIT 1) AS advantage
FROM verdicts m CROSS JOIN trajectories t ON t.id = m.trajectory_id
    LEFT JOIN verdicts g ON g.trajectory_id = t.id AND g.stage = 'grade'
WHERE m.task_id = ? AND m.stage = 'mint' ORDER BY t.step, t.subject_id, t.position
"""
_ASKED = "SELECT * FROM choices WHERE step = ? AND subject_id = ? AND mode <> 'replay' ORDER BY position LIMIT 1"
_CHOSEN = "SELECT * FROM choices WHERE mode IN ('replay', 'mutate') AND subject_id = ? ORDER BY step, position"
_ROUNDS = """
SELECT t.step, t.role, t.step <= (SELECT coalesce(max(step), -1) FROM steps) AS closed, count(*) AS played,
    count(v.passed) AS decided, coalesce(sum(v.passed), 0) AS solved
FROM trajectories t LEFT JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'judge'
WHERE t.subject_id = ? AND t.stage = 'attempt' AND t.fault IS NULL GROUP BY t.step, t.role
"""
_CHILDREN = """
SELECT k.id, k.step, count(v.passed) AS decided, coalesce(sum(v.passed), 0) AS solved
FROM trajectories p CROSS JOIN verdicts m ON m.trajectory_id = p.id AND m.stage = 'mint'
    CROSS JOIN tasks k ON k.id = m.task_id
    LEFT JOIN trajectories t ON t.subject_id = k.id AND t.stage = 'attempt'
    LEFT JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'judge'
WHERE p.subject_id = ? AND p.stage = 'attempt' GROUP BY k.id ORDER BY k.step, k.id
"""
_REFUSED = """
SELECT v.reason, count(*) AS num
FROM trajectories p CROSS JOIN verdicts v ON v.trajectory_id = p.id AND v.stage = 'mint'
WHERE p.subject_id = ? AND p.stage = 'attempt' AND NOT v.valid AND v.fault IS NULL GROUP BY v.reason
"""
