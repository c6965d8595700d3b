"""What is whole of a damaged ledger, in a new one: up to the last step of which nothing is missing.

A damaged page ends a scan, so every table is read from both ends, each time as far as it goes; a row
that does not decode is as one that is not there. Rows are then dropped until what is left is whole: a step
counts where its row, its update, its groups, its choices and every one of its trajectories are there, decode,
and give the tallies that were recorded as it closed. What comes after the first step that does not is left
out: it is owed, and will be played again. What `selfplay check` would not accept in the end is not given out.

Not here: weights (`selfplay.salvage`), the damaged file, which is only read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from selfplay.errors import RunFailed
from selfplay.ledger import check, check_learning, files, rows, schema, tally, unpack
from selfplay.ledger.damage import Damaged, said
from selfplay.ledger.fifth import ATTEMPT
from selfplay.ledger.found import Found, one, timed
from selfplay.ledger.records import Tally
from selfplay.types import record

_KEYED = {"turns", "tool_calls", "group_members"}
"""Tables without a rowid."""

_LATER = {"parents", "origins"}
"""Tables that older schemas lack."""

_RUN = "config_digest, config, seed, game, schema_version, engine_version, at"


@record
class Rescued:
    """What a new ledger was made of."""

    steps: int
    """Whole steps."""
    rows: Mapping[str, int]
    """Table -> rows that were kept."""
    left_out: str
    """Why it ends there, in one sentence; empty where everything was whole."""
    saves: tuple[str, ...]
    """Paths of the saves that still count."""


def rescue(folder: Path, aside: Path) -> Rescued:
    """Write what is whole of the ledger in `folder` to the new file `aside`.

    Raises:
        RunFailed: not even the run's own row can be read, or what is left is not whole.
    """
    path = folder / files.NAME
    with (
        _uncut(path, aside.with_name(f"{files.NAME}.uncut")) as readable,
        contextlib.closing(_source(readable, path)) as source,
    ):
        run = _run(source, path)
        files.write(aside, tuple(run))
        with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as target:
            target.row_factory = sqlite3.Row
            torn = dict.fromkeys((*_copy(source, target), *_drop_strangers(target, path), *_drop_looks(target)))
            steps, why = _whole_steps(target)
            left = _later(target, steps)
            for table, where in _dropped(steps - 1):
                target.execute(f"DELETE FROM {table} WHERE {where}")
            target.execute("DELETE FROM saves WHERE phase = 'play' AND step >= ?", (steps,))
            target.execute("DELETE FROM saves WHERE NOT (weights_digest, policy_version) IN (SELECT * FROM versions)")
            target.execute("DROP TABLE temp.versions")
            _close(target)
            if "parents" in torn and not one(target, "SELECT count(*) FROM updates"):
                raise _hopeless(path, "whether it was forked, and from what, cannot be read")
            if problem := _problem(target):
                raise _hopeless(path, problem)
            kept = {table: one(target, f"SELECT count(*) FROM {table}") for table in ("blobs", *rows.COLUMNS)}
            saves = tuple(row[0] for row in target.execute("SELECT path FROM saves ORDER BY id"))
    left_out = f"step {steps}: {why}" if left else f"rows that cannot be read in {', '.join(torn)}" if torn else ""
    return Rescued(steps=steps, rows=kept, left_out=left_out, saves=saves)


@contextlib.contextmanager
def _uncut(path: Path, scratch: Path) -> Iterator[Path]:
    """`path`; where its end is missing, a copy with empty pages in that place, since SQLite reads no shorter file."""
    with path.open("rb") as file:
        head = file.read(100)
    page_bytes, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    if head[:16] != b"SQLite format 3\0" or page_bytes * pages <= path.stat().st_size:
        yield path
        return
    try:
        shutil.copyfile(path, scratch)
        os.truncate(scratch, page_bytes * pages)
        wal = path.with_name(f"{path.name}-wal")
        if wal.is_file():
            shutil.copyfile(wal, scratch.with_name(f"{scratch.name}-wal"))
        yield scratch
    finally:
        files.remove(scratch)


def _source(readable: Path, path: Path) -> sqlite3.Connection:
    """The damaged file, in its `readable` form: with the -wal where that opens, else without it."""
    for query in ("mode=ro", "mode=ro&immutable=1"):
        try:
            connection = files.open_read_only(readable, query)
            connection.execute("SELECT count(*) FROM runs").fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            last: Exception = error
        else:
            return connection
    raise _hopeless(path, said(last)) from last


def _run(source: sqlite3.Connection, path: Path) -> sqlite3.Row:
    """The run's own row; after it, a text that is no UTF-8 does not end a scan."""
    try:
        run: sqlite3.Row | None = source.execute(f"SELECT {_RUN} FROM runs").fetchone()
        if run is None:
            raise _hopeless(path, "it has no run")
        unpack.json_of(run, "config")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _hopeless(path, said(error)) from error
    source.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    return run


def _hopeless(path: Path, why: str) -> RunFailed:
    return RunFailed(
        f"nothing can be saved of {path}: its head is damaged ({why})",
        hint="restore a copy of it; each folder under weights/ opens by itself as a model",
    )


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> list[str]:
    """Copy every table as far as it can be read; the names of those that could not be read whole."""
    torn = []
    for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        target.execute(f"DROP TRIGGER {name}")
    there = {row[0] for row in source.execute("SELECT name FROM sqlite_master")}
    target.execute("BEGIN")
    for table in ("blobs", *rows.COLUMNS):
        if table in _LATER and table not in there:
            continue
        declared = [(row[1], row[2]) for row in target.execute(f"PRAGMA table_info({table})")]
        columns = [name for name, _ in declared]
        if table not in _KEYED and ("id", "INTEGER") not in declared:
            # note: the order of the rows says what came first.
            columns.insert(0, "rowid")
        order = rows.KEYS[table] if table in _KEYED else ("rowid",)
        sql = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        whole = False
        for direction in ("ASC", "DESC"):
            keys = ", ".join(f"{key} {direction}" for key in order)
            reading = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {keys}"
            whole = whole or _read(partial(source.execute, reading), partial(_keep, target, sql))
        if not whole:
            torn.append(table)
    target.execute("COMMIT")
    return torn


def _read(ask: Callable[[], Iterator[Any]], keep: Callable[[Any], bool]) -> bool:
    """Keep rows until a damaged page ends the scan; True where none did, and every row was kept."""
    whole = True
    for row in _until_damage(ask):
        whole = row is not None and keep(row) and whole
    return whole


def _until_damage(ask: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Rows; a last None where a damaged page ended the scan."""
    try:
        yield from ask()
    except (sqlite3.Error, UnicodeError, OverflowError):
        yield None


def _keep(target: sqlite3.Connection, sql: str, row: sqlite3.Row) -> bool:
    """Keep a row; False where it is not as it was written, or is there already."""
    try:
        for column in rows.JSON_COLUMNS.intersection(row.keys()):
            unpack.json_of(row, column)
        return target.execute(sql, tuple(row)).rowcount == 1
    except (Damaged, sqlite3.IntegrityError, UnicodeError):
        # note: a damaged cell may hold any value, which the tables refuse, or bytes that are no text.
        return False


def _drop_strangers(target: sqlite3.Connection, path: Path) -> list[str]:
    """Drop rows whose ids are not those of what they hold; the names of the tables that had one."""
    torn = []
    (config,) = target.execute("SELECT config_digest FROM runs").fetchone()
    for table in ("trajectories", "tasks"):
        found = target.execute(f"SELECT * FROM {table}")
        strange = [(row["id"],) for row in found if row["id"] != check.own_id(table, row, config=config)]
        if len(strange) == one(target, f"SELECT count(*) FROM {table}") > 1:
            raise _hopeless(path, "the digest of its settings is not the one that its ids were made with")
        target.executemany(f"DELETE FROM {table} WHERE id = ?", strange)
        torn += [table] if strange else []
    return torn


def _drop_looks(target: sqlite3.Connection) -> list[str]:
    """Drop what was played to look at the weights and is not whole: no step follows from it. As `_drop_strangers`."""
    looked = check.broken(target, where="t.stage = 'evaluate'", closed=-1)
    gone = [(own,) for own, problem in looked if problem is not None]
    target.executemany("DELETE FROM trajectories WHERE id = ?", gone)
    return ["trajectories"] if gone else []


def _whole_steps(target: sqlite3.Connection) -> tuple[int, str]:
    """How many steps are whole, and what is wrong with the next; fills the table `versions` of what they made."""
    target.execute("CREATE TEMP TABLE versions (weights_digest TEXT, policy_version INTEGER)")
    version, digest = check_learning.start(target)
    if digest is not None:
        target.execute("INSERT INTO versions VALUES (?, ?)", (digest, version))
    learnt = {(row["phase"], row["step"]): row for row in target.execute("SELECT * FROM updates")}
    index = 0
    while (row := learnt.get(("warmup", index))) is not None and _counts(target, row, version):
        version = _made(target, row)
        index += 1
    target.execute("DELETE FROM updates WHERE phase = 'warmup' AND step >= ?", (index,))
    if version == 0 and index == 0:
        # note: the pretrained weights, whose digest no update has; a save of them says it.
        target.execute("INSERT INTO versions SELECT weights_digest, 0 FROM saves WHERE policy_version = 0")
    step = 0
    totals: dict[str, Tally] = {}
    while True:
        row = learnt.get(("play", step))
        try:
            why = _missing(target, step, totals) if row is not None else "its update is missing"
        except (sqlite3.Error, zlib.error, ValueError, LookupError, TypeError) as error:
            why = f"it is damaged ({error})"
        if why is None and row is not None and not _counts(target, row, version):
            why = "its update does not follow from those before it"
        if why is not None or row is None:
            return step, why or ""
        version = _made(target, row)
        totals = tally.add(totals, tally.of_step(target, step))
        step += 1


def _counts(target: sqlite3.Connection, row: sqlite3.Row, version: int) -> bool:
    """Does this update come next after `version`, and is it whole?"""
    skipped = row["skipped"] is not None
    if row["policy_version"] != version + (not skipped):
        return False
    try:
        return not list(check_learning.content(target, row, skipped=skipped))
    except (sqlite3.Error, zlib.error, ValueError, LookupError, TypeError):
        return False


def _made(target: sqlite3.Connection, row: sqlite3.Row) -> int:
    target.execute("INSERT INTO versions VALUES (?, ?)", (row["weights_digest"], row["policy_version"]))
    return int(row["policy_version"])


def _missing(target: sqlite3.Connection, step: int, before: Mapping[str, Tally]) -> str | None:
    """What is not whole of a step, but for its update; None where all is."""
    row = target.execute("SELECT tallies, totals, counts FROM steps WHERE step = ?", (step,)).fetchone()
    if row is None:
        return "its row is missing"
    counted = tally.of_step(target, step)
    if tally.dump(counted) != json.loads(row["tallies"]):
        return "trajectories or verdicts are missing"
    if tally.dump(tally.add(before, counted)) != json.loads(row["totals"]):
        return "its totals are not the sum of the tallies"
    found = Found()
    check.conversations(target, found, where="t.step = ? AND t.stage <> 'evaluate'", given=(step,), closed=step)
    check_learning.groups(target, found, where="g.step = ?", given=(step,))
    if found.problems:
        return found.problems[0]
    groups = one(target, "SELECT count(*) FROM groups WHERE step = ?", step)
    if json.loads(row["counts"]).get("groups", groups) != groups:
        return "groups are missing"
    if one(target, "SELECT coalesce(max(position) + 1, 0) - count(*) FROM choices WHERE step = ?", step):
        return "choices are missing"
    if one(target, _NO_SUBJECT, step):
        return "a seed or a task that was chosen is missing"
    if one(target, _NO_CHILD, step):
        return "what became of a failed attempt is missing"
    return "a task is missing" if one(target, _NO_TASK, step) else None


_GONE = "v.task_id IS NOT NULL AND v.task_id NOT IN (SELECT k.id FROM tasks k JOIN seeds s ON s.id = k.seed_id)"
_NO_SUBJECT = (
    "SELECT count(*) FROM choices c WHERE c.step = ? AND c.subject_id NOT IN (SELECT id FROM seeds) "
    "AND c.subject_id NOT IN (SELECT k.id FROM tasks k JOIN seeds s ON s.id = k.seed_id)"
)
_NO_TASK = (
    "SELECT count(*) FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id "
    f"WHERE t.step = ? AND t.stage = 'propose' AND {_GONE}"
)
_NO_CHILD = (
    f"SELECT count(*) FROM choices c LEFT JOIN verdicts v ON v.trajectory_id = {ATTEMPT} AND v.stage = 'mint' "
    f"WHERE c.step = ? AND c.mode = 'mutate' AND (v.stage IS NULL OR {_GONE})"
)


def _later(target: sqlite3.Connection, steps: int) -> bool:
    """Was there anything of step `steps` or a later one?"""
    return any(
        one(target, f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE step >= ? {only} LIMIT 1)", steps)
        for table, only in (("choices", ""), ("trajectories", "AND stage <> 'evaluate'"), ("steps", ""))
    )


def _dropped(last: int) -> Iterator[tuple[str, str]]:
    """(table, which of its rows go), in an order that leaves no reference to nothing."""
    late = f"step > {last}"
    gone = "trajectory_id NOT IN (SELECT id FROM trajectories)"
    # note: of what there need not be (results, a product), NULL is not in anything and does not count.
    blob = " OR ".join(f"{name} NOT IN (SELECT id FROM blobs)" for name in rows.BLOB_COLUMNS["trajectories"])
    yield "trajectories", f"({late} AND stage <> 'evaluate') OR {blob}"
    yield "trajectories", "num_turns <> (SELECT count(*) FROM turns u WHERE u.trajectory_id = trajectories.id)"
    yield "tasks", f"({late} AND parent_id IS NOT NULL) OR seed_id NOT IN (SELECT id FROM seeds)"
    yield "tasks", "parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM trajectories)"
    yield "verdicts", f"{gone} OR (task_id IS NOT NULL AND task_id NOT IN (SELECT id FROM tasks))"
    yield "groups", late
    yield "group_members", f"{gone} OR group_id NOT IN (SELECT id FROM groups)"
    yield "tool_calls", gone
    yield "turns", gone
    yield "choices", late
    # note: what a later step decided about an attempt of an earlier one belongs to the later step.
    chosen = f"SELECT {ATTEMPT} FROM choices c WHERE c.mode = 'mutate' AND {ATTEMPT} IS NOT NULL"
    played = "SELECT id FROM trajectories WHERE stage = 'attempt'"
    yield "verdicts", f"stage = 'mint' AND trajectory_id IN ({played}) AND trajectory_id NOT IN ({chosen})"
    yield "updates", f"phase = 'play' AND {late}"
    yield "steps", late
    yield "launch_ends", "launch_id NOT IN (SELECT id FROM launches)"
    yield "faults", "launch_id NOT IN (SELECT id FROM launches)"
    used = " UNION ALL ".join(
        f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
        for table, columns in rows.BLOB_COLUMNS.items()
        for column in columns
    )
    yield "blobs", f"id NOT IN ({used})"


def _problem(target: sqlite3.Connection) -> str | None:
    """The first thing that `selfplay check` finds wrong; None where there is nothing."""
    for name, (what, look) in check.CHECKS.items():
        if problems := timed(name, what, partial(look, target)).problems:
            return problems[0]
    return None


def _close(target: sqlite3.Connection) -> None:
    """Make it append-only again, and one file."""
    for statement in schema.statements():
        if statement.startswith(("CREATE TRIGGER", "DROP TRIGGER")):
            target.execute(statement)
    target.execute("PRAGMA incremental_vacuum").fetchall()
    target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
