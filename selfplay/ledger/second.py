"""Version 2 of the schema: where a fork comes from, and what state every trajectory is in.

A state is never stored: `trajectory_states` derives it from which rows exist. What is owed is read off
the configuration (proposals a choice, attempts a task), so the view also shows trajectories that are
not there yet, without an id.

Not here: version 1 and what is common to all versions (`schema.py`).
"""

from __future__ import annotations

from selfplay.types import Stop

TABLES = """
CREATE TABLE parents ( -- The run that this one was forked from: one row, or none. Its records stay with it.
    id INTEGER PRIMARY KEY CHECK (id = 1), -- Always 1.
    path TEXT NOT NULL, -- The parent's folder, relative to this run's.
    config_digest TEXT NOT NULL, -- The parent's; its ids were made with it.
    step INTEGER NOT NULL, -- The parent's last step that the weights have seen; -1 for none.
    policy_version INTEGER NOT NULL, -- Version of the weights; this run's first update makes the next one.
    weights_digest TEXT NOT NULL, -- Digest of the float32 parameters.
    save_path TEXT NOT NULL, -- The save in the parent, as its ledger names it.
    changed TEXT NOT NULL, -- Settings that differ from the parent's: key to [its value, this run's], JSON.
    at REAL NOT NULL -- When it was forked, Unix seconds.
) STRICT;
"""

VIEW_COMMENTS = {
    "": "What state every trajectory is in, derived from rows; tries that ended in a fault are left out.",
    "state": "owed, sampled (no verdict), judged, graded (its reward is final or it is in a group), trained.",
    "id": "NULL where it is owed.",
    "step": "Step it is played in.",
    "stage": "What it is played for; what is owed for stage evaluate is not listed.",
    "role": "Name of the role.",
    "subject_id": "The seed or the task.",
    "position": "Among the siblings on the same subject, 0-based.",
}
"""Column -> comment; the empty one is the view's."""

_SETTING = "(SELECT json_extract(config, '$.\"{}\"') FROM runs)"

OPEN = "(SELECT coalesce(max(step), -1) + 1 FROM steps)"
"""The step that is played next, or is half played."""

_TRUNCATED = ", ".join(f"'{stop}'" for stop in Stop if stop.truncated)

# note: which trajectories an update learnt from is in a blob, which SQL cannot unpack; the rule is
# `batches.batch_of`'s, and `selfplay check` compares it with the blob.
_TRAINED = f"""
        WHEN EXISTS (SELECT 1 FROM group_members m JOIN groups g ON g.id = m.group_id WHERE m.trajectory_id = t.id
                     AND g.informative)
            AND EXISTS (SELECT 1 FROM updates u WHERE u.phase = 'play' AND u.step = t.step AND u.skipped IS NULL)
            AND t.num_sampled > 0 AND t.stop NOT IN ({_TRUNCATED})
            AND coalesce((SELECT 1 FROM json_each({_SETTING.format("roles.train")}) s
                          WHERE s.value = CASE t.stage WHEN 'propose' THEN 'proposer' ELSE 'solver' END), 0)
            THEN 'trained'"""

_PLAYED = f"""
    SELECT CASE{_TRAINED}
        WHEN EXISTS (SELECT 1 FROM verdicts v WHERE v.trajectory_id = t.id AND v.stage = 'grade')
            OR EXISTS (SELECT 1 FROM group_members m WHERE m.trajectory_id = t.id) THEN 'graded'
        WHEN EXISTS (SELECT 1 FROM verdicts v WHERE v.trajectory_id = t.id) THEN 'judged'
        ELSE 'sampled' END,
        t.id, t.step, t.stage, t.role, t.subject_id, t.position
    FROM trajectories t WHERE t.fault IS NULL"""


def _owed(stage: str, subjects: str, *, count: str, role: str) -> str:
    """Select the places of `stage` in the open step that no trajectory without a fault fills."""
    return f"""
    SELECT 'owed', NULL, {OPEN}, '{stage}', {_SETTING.format(role)}, s.subject_id, n.value
    FROM ({subjects}) s JOIN places n ON n.value < {_SETTING.format(count)}
    WHERE NOT EXISTS (SELECT 1 FROM trajectories t WHERE t.step = {OPEN} AND t.stage = '{stage}'
        AND t.subject_id = s.subject_id AND t.position = n.value AND t.fault IS NULL)"""


def view(*, also: str = "") -> str:
    """The SQL that makes `trajectory_states`; `also` adds tasks to those that attempts are owed on."""
    columns = [name for name in VIEW_COMMENTS if name]
    head = "".join(f"\n    {name}{',' if name != columns[-1] else ''} -- {VIEW_COMMENTS[name]}" for name in columns)
    most = f"max({_SETTING.format('play.proposals')}, {_SETTING.format('play.attempts')})"
    proposed = f"SELECT DISTINCT subject_id FROM choices WHERE step = {OPEN} AND mode = 'propose'"
    minted = (
        f"SELECT DISTINCT v.task_id AS subject_id FROM trajectories t JOIN verdicts v ON v.trajectory_id = t.id "
        f"WHERE t.step = {OPEN} AND t.stage = 'propose' AND v.stage = 'mint' AND v.task_id IS NOT NULL{also}"
    )
    return (
        f"CREATE VIEW trajectory_states ( -- {VIEW_COMMENTS['']}{head}\n) AS\n"
        "    WITH RECURSIVE places(value) AS "
        f"(SELECT 0 UNION ALL SELECT value + 1 FROM places WHERE value + 1 < {most})"
        + _PLAYED
        + "\n    UNION ALL"
        + _owed("propose", proposed, count="play.proposals", role="roles.proposer")
        + "\n    UNION ALL"
        + _owed("attempt", minted, count="play.attempts", role="roles.solver")
    )


def statements() -> list[str]:
    """The SQL of version 2, a statement each."""
    return [
        *(part.strip() for part in TABLES.split(";\n") if part.strip()),
        view(),
        *(
            f"CREATE TRIGGER parents_no_{verb.lower()} BEFORE {verb} ON parents "
            "BEGIN SELECT RAISE(ABORT, 'rows of parents are never changed'); END"
            for verb in ("UPDATE", "DELETE")
        ),
    ]
