"""Which plays and tasks of some steps are worth reading: most and least advantage, never solved, refused for a reason.

Every question starts at steps and goes on by index, so its cost follows the steps that are looked through and not the
run's length. Turns and blobs are not read, but for the names of the plays that an update learnt from.

Not here: which of them are surprising (`views.inspect_pick`), their texts (`queries`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from selfplay.ledger import blobs
from selfplay.ledger.bulk import Ask
from selfplay.ledger.damage import decoding
from selfplay.types import record


@record
class Ranked:
    """A play that is in a group."""

    id: str
    step: int
    stage: str
    subject_id: str
    reward: float
    advantage: float
    reason: str | None
    why: str
    """Of the mint or the judge; empty where there is none yet."""


@record
class Refused:
    """A proposal that became no task."""

    id: str
    step: int
    reason: str
    why: str
    reward: float | None


@record
class Record:
    """How a task went, step by step."""

    task_id: str
    born: int
    """Step that minted it."""
    rounds: tuple[tuple[int, int, int], ...]
    """(step, decided attempts, solved ones), by step; steps without a decision left out."""


def learnt_from(ask: Ask, step: int) -> frozenset[str] | None:
    """The plays that the step's update learnt from; None where it has no update yet."""
    rows = ask(_LEARNT_FROM, step)
    if not rows:
        return None
    with decoding("the ids of what an update learnt from"):
        packed = blobs.unpack(rows[0]["dtype"], rows[0]["codec"], rows[0]["data"])
        return frozenset(json.loads(blobs.text_of(packed)))


def by_advantage(ask: Ask, steps: Sequence[int], *, best: bool, limit: int) -> tuple[Ranked, ...]:
    """The plays of those steps with the highest (`best`) or the lowest advantages, in groups that teach something."""
    order = "DESC" if best else "ASC"
    inner = _RANKED.format(order=order, steps=_places(steps))
    rows = ask(f"SELECT r.*, {_DECIDED} FROM ({inner}) r {_DECISION} {_LAST.format(order=order)}", *steps, limit)
    names = ("id", "step", "stage", "subject_id", "reward", "advantage", "reason")
    return tuple(Ranked(**{name: row[name] for name in names}, why=row["why"] or "") for row in rows)


def records(ask: Ask, steps: Sequence[int]) -> tuple[Record, ...]:
    """Every task that those steps attempted, with all its rounds up to the newest of them, by task."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    born: dict[str, int] = {}
    for row in ask(_RECORDS.format(steps=_places(steps)), *steps):
        born[row["id"]] = row["born"]
        if row["decided"]:
            found.setdefault(row["id"], []).append((row["at"], row["decided"], row["solved"]))
    return tuple(Record(task_id=task, born=born[task], rounds=tuple(rounds)) for task, rounds in found.items())


def refused(ask: Ask, reason: str, steps: Sequence[int], *, limit: int) -> tuple[Refused, ...]:
    """The newest proposals of those steps that were refused for `reason`."""
    rows = ask(_REFUSED.format(steps=_places(steps)), reason, *steps, limit)
    return tuple(Refused(**{name: row[name] for name in ("id", "step", "reason", "why", "reward")}) for row in rows)


def refusals(ask: Ask, steps: Sequence[int]) -> Mapping[str, int]:
    """Reason code -> proposals of those steps that were refused for it, the most frequent first."""
    return {row["reason"]: row["num"] for row in ask(_REASONS.format(steps=_places(steps)), *steps)}


def steps_that_refused(ask: Ask, reason: str, *, limit: int) -> tuple[int, ...]:
    """The newest closed steps that refused a proposal for `reason`, by their tallies."""
    return tuple(row["step"] for row in ask(_STEPS_WITH, f"%{json.dumps(reason)}:%", reason, limit))


def _places(steps: Sequence[int]) -> str:
    return ", ".join("?" * len(steps))


_LEARNT_FROM = (
    "SELECT b.dtype, b.codec, b.data FROM updates u CROSS JOIN blobs b ON b.id = u.trajectory_ids "
    "WHERE u.phase = 'play' AND u.step = ?"
)
_RANKED = (
    "SELECT t.id, t.step, t.stage, t.subject_id, m.reward, m.advantage FROM groups g "
    "CROSS JOIN group_members m ON m.group_id = g.id CROSS JOIN trajectories t ON t.id = m.trajectory_id "
    "WHERE g.informative AND g.step IN ({steps}) "
    "ORDER BY m.advantage {order}, m.reward {order}, t.step DESC, t.id LIMIT ?"
)
_LAST = "ORDER BY r.advantage {order}, r.reward {order}, r.step DESC, r.id"
_DECIDED = "v.reason, v.why"
_DECISION = (
    "LEFT JOIN verdicts v ON v.trajectory_id = r.id AND v.stage = CASE r.stage WHEN 'propose' THEN 'mint' "
    "ELSE 'judge' END"
)
_RECORDS = """
WITH tried AS (
    SELECT subject_id AS id, max(step) AS newest FROM trajectories
    WHERE step IN ({steps}) AND stage = 'attempt' AND fault IS NULL GROUP BY subject_id
)
SELECT n.id, k.step AS born, t.step AS at, count(v.passed) AS decided, coalesce(sum(v.passed), 0) AS solved
FROM tried n CROSS JOIN tasks k ON k.id = n.id
    CROSS JOIN trajectories t ON t.subject_id = n.id AND t.stage = 'attempt' AND t.fault IS NULL AND t.step <= n.newest
    LEFT JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'judge'
GROUP BY n.id, t.step ORDER BY n.id, t.step
"""
_OF_STEPS = (
    "FROM trajectories t CROSS JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'mint' "
    "LEFT JOIN verdicts g ON g.trajectory_id = t.id AND g.stage = 'grade' "
    "WHERE t.stage = 'propose' AND NOT v.valid AND v.fault IS NULL"
)
_REFUSED = (
    f"SELECT t.id, t.step, v.reason, v.why, g.reward {_OF_STEPS} AND v.reason = ? AND t.step IN ({{steps}}) "
    "ORDER BY t.step DESC, t.subject_id, t.position LIMIT ?"
)
_REASONS = (
    f"SELECT v.reason, count(*) AS num {_OF_STEPS} AND t.step IN ({{steps}}) "
    "GROUP BY v.reason ORDER BY num DESC, v.reason"
)
# note: the first condition is a quick one, and also true where the word stands for something else.
_STEPS_WITH = """
SELECT s.step FROM steps s WHERE s.tallies LIKE ? AND EXISTS (
    SELECT 1 FROM json_each(s.tallies) p, json_each(p.value, '$.reasons') r WHERE p.key LIKE 'propose/%' AND r.key = ?
) ORDER BY s.step DESC LIMIT ?
"""
