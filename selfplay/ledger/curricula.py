"""What a curriculum asks of the ledger: what was proposed and solved lately, counted in SQL over indexes.

Every question is about closed steps from `since` to below `before`, so its cost follows that window and not the run's
length: a task that was last played earlier is not in the answer. What an answered task was played before the window
is: its posterior rests on all its attempts.

Not here: what follows from the answers (`selfplay.curriculum`), any other question (`queries.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from selfplay.ledger import unpack
from selfplay.ledger.bulk import Ask
from selfplay.ledger.fifth import ATTEMPT
from selfplay.types import Stop, record

_CHUNK = 500
"""Ids a statement."""


@record
class Played:
    """A task's attempts in one step."""

    step: int
    decided: int
    solved: int
    hinted: bool = False
    """The choice that played it asked for a hint."""


@record
class KnownTask:
    """A task that may be played again."""

    id: str
    seed_id: str
    step: int
    """The step that minted it."""
    role: str
    """Whose attempts these are."""
    strategy: str
    """What the choice asked the proposer for; empty where it asked for nothing."""
    parent_id: str | None
    """The task that it is a child of."""
    plays: tuple[Played, ...]
    """By step; the first one without a hint is what its cell's prior rests on."""


@record
class Proposed:
    """What became of the proposals on one seed, or of the failed attempts on one task that were to be its children."""

    choices: int
    """How often the seed was chosen, or the task for a child."""
    decided: int
    valid: int
    reasons: Mapping[str, int]
    """Reason code -> how many were rejected for it."""


class CurriculumQueries:
    """The part of `Reader` that curricula ask."""

    _snapshot: Callable[[], AbstractContextManager[Ask]]
    """One read transaction; `Reader` has it."""

    def played_seeds(self, *, before: int) -> dict[str, int]:
        """How often each seed was chosen for a proposal in closed steps below `before`."""
        sql = (
            "SELECT subject_id AS name, count(*) AS num FROM choices WHERE mode = 'propose' AND step < ? "
            "AND step <= (SELECT coalesce(max(step), -1) FROM steps) GROUP BY subject_id"
        )
        with self._snapshot() as ask:
            return {row["name"]: row["num"] for row in ask(sql, before)}

    def known_tasks(self, *, since: int, before: int) -> tuple[KnownTask, ...]:
        """The train tasks that were attempted in those steps, by the step that minted them and id."""
        with self._snapshot() as ask:
            played: dict[tuple[str, str], list[sqlite3.Row]] = {}
            for row in ask(_RECENT, since, before):
                played.setdefault((row["task"], row["role"]), []).append(row)
            tasks = {row["id"]: row for row in _by_ids(ask, _TASKS, {task for task, _ in played})}
            for row in _by_ids(ask, _EARLIER, [one for one, row in tasks.items() if row["step"] < since], since):
                played.setdefault((row["task"], row["role"]), []).append(row)
            first = min((row["step"] for row in tasks.values()), default=since)
            hinted = {(row["step"], row["subject_id"]) for row in ask(_HINTED, first, before)}
            known = [_known(tasks[task], role, rows, hinted) for (task, role), rows in played.items() if task in tasks]
        return tuple(sorted(known, key=lambda task: (task.step, task.id, task.role)))

    def proposals(self, *, since: int, before: int) -> dict[str, Proposed]:
        """What became of the proposals of those steps, by what they were made on: a seed, or a child's parent."""
        with self._snapshot() as ask:
            chosen = {row["subject_id"]: row["num"] for row in ask(_CHOSEN, since, before)}
            found: dict[str, list[sqlite3.Row]] = {subject: [] for subject in chosen}
            for row in (*ask(_MINTED, since, before), *ask(_MUTATED, since, before)):
                found.setdefault(row["subject_id"], []).append(row)
        return {
            subject: Proposed(
                choices=chosen.get(subject, 0),
                decided=sum(row["num"] for row in rows),
                valid=sum(row["num"] for row in rows if row["valid"]),
                reasons={row["reason"]: row["num"] for row in rows if not row["valid"]},
            )
            for subject, rows in found.items()
        }

    def movement(self, *, since: int, before: int) -> dict[int, float]:
        """Step -> how far its update moved the policy, in updates: 1 where the weights changed, 0 where they did not.

        No metric of an update says how far the policy moved on tokens that it did not learn from, so the unit is the
        update itself.
        """
        with self._snapshot() as ask:
            return {row["step"]: float(row["changed"]) for row in ask(_MOVED, since, before)}

    def failed_attempts(self, task_id: str, *, before: int) -> tuple[str, ...]:
        """The attempts on a task that ended by themselves, failed inside the rules and were not chosen for a child yet.

        The newest come first.
        """
        with self._snapshot() as ask:
            return tuple(row["id"] for row in ask(_FAILED, task_id, before, before))


def _by_ids(ask: Ask, sql: str, ids: Iterable[str], *given: object) -> Iterator[sqlite3.Row]:
    """The rows of `sql` for all ids, a chunk at a time; `{}` in it takes their places."""
    wanted = sorted(ids)
    for chunk in (wanted[i : i + _CHUNK] for i in range(0, len(wanted), _CHUNK)):
        yield from ask(sql.format(", ".join("?" * len(chunk))), *chunk, *given)


def _known(task: sqlite3.Row, role: str, rows: Sequence[sqlite3.Row], hinted: set[tuple[int, str]]) -> KnownTask:
    terms = unpack.json_of(task, "terms") or {}
    plays = (
        Played(
            step=row["step"],
            decided=row["decided"],
            solved=row["solved"],
            hinted=(row["step"], task["id"]) in hinted,
        )
        for row in rows
    )
    return KnownTask(
        id=task["id"],
        seed_id=task["seed_id"],
        step=task["step"],
        role=role,
        strategy=str(terms.get("strategy", "")),
        parent_id=task["origin"] if task["origin"] != task["seed_id"] else None,
        plays=tuple(sorted(plays, key=lambda play: play.step)),
    )


# note: steps come first, so that only closed ones are read, each by (step, stage) of trajectories_place.
_COUNTED = "t.subject_id AS task, t.role AS role, t.step AS step, count(v.passed) AS decided"
_JUDGED = "LEFT JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'judge'"
_RECENT = f"""
SELECT {_COUNTED}, coalesce(sum(v.passed), 0) AS solved
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage = 'attempt' {_JUDGED}
WHERE s.step >= ? AND s.step < ? GROUP BY s.step, t.role, t.subject_id
"""
_EARLIER = f"""
SELECT {_COUNTED}, coalesce(sum(v.passed), 0) AS solved
FROM trajectories t {_JUDGED}
WHERE t.subject_id IN ({{}}) AND t.stage = 'attempt' AND t.step < ? GROUP BY t.subject_id, t.role, t.step
"""
_TASKS = """
SELECT k.id, k.seed_id, k.step, p.subject_id AS origin,
    (SELECT c.terms FROM choices c WHERE c.step = k.step AND c.subject_id = p.subject_id AND c.mode <> 'replay'
     ORDER BY c.position LIMIT 1) AS terms
FROM tasks k LEFT JOIN trajectories p ON p.id = k.parent_id
WHERE k.id IN ({}) AND k.split = 'train'
"""
# note: the plus keeps SQLite from reading every replay of the run by its mode.
_HINTED = """
SELECT c.step, c.subject_id FROM choices c
WHERE c.step >= ? AND c.step < ? AND +c.mode = 'replay' AND json_extract(c.terms, '$.hint')
"""
_CHOSEN = """
SELECT c.subject_id, count(*) AS num FROM steps s CROSS JOIN choices c ON c.step = s.step
WHERE s.step >= ? AND s.step < ? AND c.mode <> 'replay' GROUP BY c.subject_id
"""
_MINTED = """
SELECT t.subject_id, v.valid, v.reason, count(*) AS num
FROM steps s CROSS JOIN trajectories t ON t.step = s.step AND t.stage = 'propose'
    CROSS JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'mint'
WHERE s.step >= ? AND s.step < ? AND v.fault IS NULL GROUP BY t.subject_id, v.valid, v.reason
"""
_TRUNCATED = ", ".join(f"'{stop}'" for stop in Stop if stop.truncated)
_MUTATED = f"""
SELECT c.subject_id, v.valid, v.reason, count(*) AS num
FROM steps s CROSS JOIN choices c ON c.step = s.step AND +c.mode = 'mutate'
    CROSS JOIN verdicts v ON v.trajectory_id = {ATTEMPT} AND v.stage = 'mint'
WHERE s.step >= ? AND s.step < ? AND v.fault IS NULL GROUP BY c.subject_id, v.valid, v.reason
"""
_MOVED = """
SELECT u.step, u.skipped IS NULL AS changed FROM steps s CROSS JOIN updates u ON u.phase = 'play' AND u.step = s.step
WHERE s.step >= ? AND s.step < ? ORDER BY u.step
"""
_FAILED = f"""
SELECT t.id FROM trajectories t CROSS JOIN verdicts v ON v.trajectory_id = t.id AND v.stage = 'judge'
WHERE t.subject_id = ? AND t.stage = 'attempt' AND t.step < ? AND t.step <= (SELECT coalesce(max(step), -1) FROM steps)
    AND v.valid AND v.passed = 0 AND t.stop NOT IN ({_TRUNCATED}) AND NOT EXISTS (
        SELECT 1 FROM choices c
        WHERE c.mode = 'mutate' AND c.subject_id = t.subject_id AND c.step < ? AND {ATTEMPT} = t.id
    )
ORDER BY t.step DESC, t.position
"""
