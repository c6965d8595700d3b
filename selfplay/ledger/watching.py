"""The newest rows of a run, and what its steps spent: for screens that are drawn again and again, and for reports.

Every question is answered by an index, from the newest end or for a range of steps, so its cost does not grow with the
run. Turns and blobs are not read.

Not here: counts (`tally`), the whole of a trajectory (`queries`), layout (`views.watch_screen`, `views.report`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from selfplay.ledger import unpack
from selfplay.ledger.bulk import Ask
from selfplay.ledger.fifth import ATTEMPT
from selfplay.types import Choice, record


@record
class Recent:
    """A trajectory as a list shows it."""

    id: str
    step: int
    stage: str
    role: str
    subject_id: str
    broken: bool
    """The machine failed: nothing was, or will be, decided about this try."""
    valid: bool | None
    """None where nothing is decided yet."""
    passed: bool | None
    reason: str | None
    why: str
    """Of the mint or the judge; empty where there is none yet."""
    reward: float | None


@record
class Spent:
    """What one step brought, and what its tools took."""

    tasks: int = 0
    """Accepted: minted by it."""
    replies: int = 0
    """Calls of the model: turns that it sampled, of both roles."""
    tools: float = 0.0
    """Seconds of tool calls inside its plays, added up."""
    calls: int = 0
    """How many those were."""
    deciding: float = 0.0
    """Seconds of its decisions, about plays and about children, added up; 0 in ledgers from before they were kept."""
    refused: Mapping[str, int]
    """Reason code -> proposals that became no task."""


@record
class Learnt:
    """A step's update, without the blobs that make reading an `Update` dear."""

    step: int
    policy_version: int
    loss: float
    grad_norm: float
    tokens: int
    skipped: str | None
    fingerprint: str
    """Versions, CPU capability, threads and dtype."""
    metrics: Mapping[str, float]


@record
class Asked:
    """What the open step is made of."""

    proposals: int
    """Choices to propose."""
    children: int
    """Choices to make a child of a failed attempt."""
    replays: int
    tasks: int
    """Minted in it so far."""


def newest_plays(ask: Ask, limit: int) -> tuple[Recent, ...]:
    """The trajectories that were recorded last, the newest first."""
    return tuple(_recent(row) for row in ask(_NEWEST_PLAYS, limit))


def newest_choices(ask: Ask, limit: int) -> tuple[Choice, ...]:
    """The choices that were made last, the newest first."""
    sql = "SELECT * FROM choices ORDER BY step DESC, position DESC LIMIT ?"
    return tuple(unpack.choice_of(row) for row in ask(sql, limit))


def asked(ask: Ask, step: int) -> Asked:
    """What `step` is made of so far."""
    modes = {row["mode"]: row["num"] for row in ask(_MODES, step)}
    tasks = ask("SELECT count(*) AS num FROM tasks WHERE step = ?", step)[0]["num"]
    proposals, children, replays = (modes.get(mode, 0) for mode in ("propose", "mutate", "replay"))
    return Asked(proposals=proposals, children=children, replays=replays, tasks=tasks)


def spent(ask: Ask, since: int, before: int) -> dict[int, Spent]:
    """Step -> what it spent, for the closed steps from `since` to below `before`."""
    steps = [row["step"] for row in ask("SELECT step FROM steps WHERE step >= ? AND step < ?", since, before)]
    tasks, replies = ({row["step"]: row["num"] for row in ask(sql, since, before)} for sql in (_TASKS, _REPLIES))
    tools = {row["step"]: row for row in ask(_TOOLS, since, before)}
    deciding: dict[int, float] = {}
    for row in (*ask(_DECIDING, since, before), *ask(_CHILDREN, since, before)):
        deciding[row["step"]] = deciding.get(row["step"], 0.0) + row["num"]
    refused: dict[int, dict[str, int]] = {}
    for row in ask(_REFUSED, since, before):
        refused.setdefault(row["step"], {})[row["reason"]] = row["num"]
    return {
        step: Spent(
            tasks=tasks.get(step, 0),
            replies=replies.get(step, 0),
            tools=tools[step]["num"] if step in tools else 0.0,
            calls=tools[step]["calls"] if step in tools else 0,
            deciding=deciding.get(step, 0.0),
            refused=refused.get(step, {}),
        )
        for step in steps
    }


def learnt(ask: Ask, after: int) -> tuple[Learnt, ...]:
    """The updates of self-play above step `after`, in order."""
    same = ("step", "policy_version", "loss", "grad_norm", "tokens", "skipped", "fingerprint")
    return tuple(
        Learnt(**{name: row[name] for name in same}, metrics=unpack.json_of(row, "metrics"))
        for row in ask(_LEARNT, after)
    )


def most_replayed(ask: Ask, limit: int) -> tuple[str, ...]:
    """Ids of the tasks that were chosen most often to be played again, the most often first."""
    return tuple(row["subject_id"] for row in ask(_REPLAYED, limit))


def outcomes(ask: Ask, stage: str, steps: Sequence[int]) -> tuple[Recent, ...]:
    """The plays of a stage in those steps, by step, subject and index; those that ended in a fault left out."""
    return tuple(_recent(row) for step in steps for row in ask(_OUTCOMES, step, stage))


def _recent(row: sqlite3.Row) -> Recent:
    same = ("id", "step", "stage", "role", "subject_id", "reason", "reward")
    return Recent(
        **{name: row[name] for name in same},
        broken=bool(row["broken"]),
        valid=None if row["valid"] is None else bool(row["valid"]),
        passed=None if row["passed"] is None else bool(row["passed"]),
        why=row["why"] or "",
    )


# note: an attempt has a judge (its mint, if any, is about a child), a proposal a mint and later a grade: a row each.
_DECIDED = """
SELECT t.id, t.step, t.stage, t.role, t.subject_id, t.fault IS NOT NULL OR v.fault IS NOT NULL AS broken,
    v.valid, v.passed, v.reason, v.why, coalesce(g.reward, v.reward) AS reward
FROM trajectories t
    LEFT JOIN verdicts v ON v.trajectory_id = t.id AND v.stage IN ('mint', 'judge')
        AND NOT (t.stage = 'attempt' AND v.stage = 'mint')
    LEFT JOIN verdicts g ON g.trajectory_id = t.id AND g.stage = 'grade'
"""
_NEWEST_PLAYS = f"{_DECIDED} ORDER BY t.rowid DESC LIMIT ?"
_OUTCOMES = f"{_DECIDED} WHERE t.step = ? AND t.stage = ? AND t.fault IS NULL ORDER BY t.subject_id, t.position"
_MODES = "SELECT mode, count(*) AS num FROM choices WHERE step = ? GROUP BY mode"
_TASKS = "SELECT step, count(*) AS num FROM tasks WHERE step >= ? AND step < ? GROUP BY step"
# note: steps come first, or SQLite would start at tool calls and verdicts, of which it would read all.
_TOOLS = """
SELECT s.step, sum(c.seconds) AS num, count(*) AS calls
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage IN ('propose', 'attempt')
    CROSS JOIN tool_calls c ON c.trajectory_id = t.id
WHERE s.step >= ? AND s.step < ? GROUP BY s.step
"""
_REPLIES = """
SELECT s.step, count(*) AS num
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage IN ('propose', 'attempt')
    CROSS JOIN turns u ON u.trajectory_id = t.id AND u.speaker = 'policy'
WHERE s.step >= ? AND s.step < ? GROUP BY s.step
"""
_DECIDING = """
SELECT s.step, sum(v.seconds) AS num
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage IN ('propose', 'attempt')
    CROSS JOIN verdicts v ON v.trajectory_id = t.id AND NOT (t.stage = 'attempt' AND v.stage = 'mint')
WHERE s.step >= ? AND s.step < ? GROUP BY s.step
"""
_CHILDREN = f"""
SELECT s.step, sum(v.seconds) AS num
FROM steps s CROSS JOIN choices c ON c.step = s.step AND c.mode = 'mutate'
    CROSS JOIN verdicts v ON v.trajectory_id = {ATTEMPT} AND v.stage = 'mint'
WHERE s.step >= ? AND s.step < ? GROUP BY s.step
"""
_REFUSED = """
SELECT s.step, v.reason, count(*) AS num
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage = 'propose'
    CROSS JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'mint'
WHERE s.step >= ? AND s.step < ? AND NOT v.valid AND v.fault IS NULL GROUP BY s.step, v.reason
"""
_LEARNT = """
SELECT step, policy_version, loss, grad_norm, tokens, skipped, fingerprint, metrics FROM updates
WHERE phase = 'play' AND step > ? ORDER BY step
"""
_REPLAYED = """
SELECT subject_id, count(*) AS num FROM choices WHERE mode = 'replay'
GROUP BY subject_id ORDER BY num DESC, subject_id LIMIT ?
"""
