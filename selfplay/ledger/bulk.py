"""Whole records in a few statements, however many: parents, children and blobs are asked for together.

Not here: which ones (`queries.py`), one row to one record (`unpack.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from selfplay.ledger import unpack
from selfplay.ledger.blobs import Blob
from selfplay.ledger.blobs import unpack as unpack_blob
from selfplay.ledger.damage import decoding
from selfplay.ledger.rows import BLOB_COLUMNS
from selfplay.types import Group, Trajectory, Update

Ask = Callable[..., list[sqlite3.Row]]
"""(sql, parameters) -> rows, inside one snapshot."""

LAST_PRUNED = (
    "SELECT coalesce(max(u.step), -1) AS step FROM updates u CROSS JOIN blobs b ON b.id = u.old_logprobs "
    "WHERE u.phase = 'play' AND b.data IS NULL"
)
"""The newest step whose log-probabilities were pruned."""

_ORDER = "t.step, t.stage, t.role, t.subject_id, t.position, t.attempt"


def trajectories(ask: Ask, which: str, *given: Any) -> tuple[Trajectory, ...]:
    """Those where `which` holds (of `t`), by step, stage, role, subject, index and try."""
    own = ask(_with_blobs("trajectories", which, _ORDER), *given)
    turns = _by_parent(ask(_children("turns", which, "c.position"), *given), "trajectory_id")
    calls = _by_parent(ask(_children("tool_calls", which, "c.turn, c.position"), *given), "trajectory_id")
    return tuple(
        unpack.trajectory_of(
            row, turns=turns.get(row["id"], ()), calls=calls.get(row["id"], ()), packed=_packed("trajectories", row)
        )
        for row in own
    )


def groups(ask: Ask, which: str, *given: Any) -> tuple[Group, ...]:
    """Those where `which` holds (of `g`), in the order in which they were committed."""
    own = ask(f"SELECT g.* FROM groups g WHERE {which} ORDER BY g.rowid", *given)
    sql = f"SELECT m.* FROM groups g CROSS JOIN group_members m ON m.group_id = g.id WHERE {which} ORDER BY m.position"
    members = _by_parent(ask(sql, *given), "group_id")
    return tuple(unpack.group_of(row, members.get(row["id"], ())) for row in own)


def updates(ask: Ask, which: str, *given: Any) -> tuple[Update, ...]:
    """Those where `which` holds, warm-up first, by step."""
    own = ask(_with_blobs("updates", which, "t.phase = 'play', t.step"), *given)
    return tuple(unpack.update_of(row, _packed("updates", row)) for row in own)


def _children(table: str, which: str, order: str) -> str:
    return (
        f"SELECT c.* FROM trajectories t CROSS JOIN {table} c ON c.trajectory_id = t.id WHERE {which} ORDER BY {order}"
    )


def _with_blobs(table: str, which: str, order: str) -> str:
    """Select a table's rows with the parts of their blobs as COLUMN_dtype, COLUMN_codec, COLUMN_data."""
    columns, joins = [], []
    for name in BLOB_COLUMNS[table]:
        columns.append(", ".join(f"{name}_blob.{part} AS {name}_{part}" for part in ("dtype", "codec", "data")))
        joins.append(f"LEFT JOIN blobs {name}_blob ON {name}_blob.id = t.{name}")
    return f"SELECT t.*, {', '.join(columns)} FROM {table} t {' '.join(joins)} WHERE {which} ORDER BY {order}"


@decoding("a blob")
def _packed(table: str, row: sqlite3.Row) -> dict[str, Blob | None]:
    return {
        name: None
        if row[name] is None
        else unpack_blob(*(row[f"{name}_{part}"] for part in ("dtype", "codec", "data")))
        for name in BLOB_COLUMNS[table]
    }


def _by_parent(rows: Sequence[sqlite3.Row], column: str) -> dict[str, list[sqlite3.Row]]:
    found: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found
