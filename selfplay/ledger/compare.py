"""Are two runs the same? A digest a table, over what must not depend on the clock, the host or the order.

Left out: clock and host columns, JSON keys that name a clock or memory, the configuration's text (its
digest stays: `run.steps` and `run.save_every` may differ), and tables of what happened to the process
rather than in the run (when it was saved, too). Blobs count as their content, wherever they lie.
What is pruned depends on `run.save_every`: runs that differ in it are compared by the log-probabilities
that both still have. A run whose warm-up came from the cache never looked at its dev set, so its
trajectories, verdicts and tasks are fewer than those of the run that made the warm-up.

Not here: reports on what differs; the digests say in which table to look.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any

from selfplay.ledger import blobs
from selfplay.ledger.damage import decoding
from selfplay.ledger.rows import BLOB_COLUMNS, COLUMNS, JSON_COLUMNS, KEYS
from selfplay.ledger.schema import CLOCK_COLUMNS, CLOCK_KEYS

LEFT_OUT = frozenset({"launches", "launch_ends", "faults", "alarms", "control", "saves", "origins"})
"""Saves follow `run.steps`, `run.save_every` and interruptions; the weights themselves are compared in `updates`. What
origins say shows in what was played."""

RUN = ("config_digest", "seed", "game", "min(schema_version, 5)")
"""Of the run's own row. Nothing that is compared has changed since schema 5: runs of it and later ones may be equal."""

LOGPROBS = {"trajectories": "logprobs", "updates": "old_logprobs"}
"""Table -> its column that is pruned."""


def digests(connection: sqlite3.Connection, *, logprobs_from: int = 0) -> dict[str, str]:
    """Table -> digest of its comparable rows, sorted by key.

    Log-probabilities of steps before `logprobs_from` are left out.
    """
    found = {"runs": _digest(connection, "runs", RUN, ("id",))}
    for table, columns in COLUMNS.items():
        if table not in LEFT_OUT:
            compared = tuple(column for column in columns if column not in CLOCK_COLUMNS)
            found[table] = _digest(connection, table, compared, KEYS[table], logprobs_from=logprobs_from)
    return found


@decoding("a row")
def _digest(
    connection: sqlite3.Connection,
    table: str,
    columns: tuple[str, ...],
    key: tuple[str, ...],
    *,
    logprobs_from: int = 0,
) -> str:
    total = hashlib.blake2b(digest_size=16)
    step = columns.index("step") if table in LOGPROBS else 0
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(key)}"):
        skipped = LOGPROBS[table] if table in LOGPROBS and row[step] < logprobs_from else None
        values = [
            _value(connection, table, column, value)
            for column, value in zip(columns, row, strict=True)
            if column != skipped
        ]
        total.update(json.dumps(values).encode())
    return total.hexdigest()


def _value(connection: sqlite3.Connection, table: str, column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in BLOB_COLUMNS.get(table, ()):
        stored = connection.execute("SELECT dtype, codec, data FROM blobs WHERE id = ?", (value,)).fetchone()
        blob = blobs.unpack(*stored)
        return [blob.dtype, hashlib.blake2b(blob.raw, digest_size=16).hexdigest()]
    if column in JSON_COLUMNS:
        return _timeless(json.loads(value))
    return value


def _timeless(value: Any) -> Any:
    """JSON without the keys that hold clocks or memory."""
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in sorted(value.items()) if not any(word in k for word in CLOCK_KEYS)}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value
