"""The one writer thread: rows go in from any thread, commits come out in groups.

A commit holds every submission that came within `WINDOW_SECONDS` of the first; a durable one (a
closing step, a save) or a flush ends the wait. One submission is all or nothing. Where a group does
not commit as a whole, its submissions are tried one by one: what is there already with the same
content is left, and only the guilty one is refused.

After a write failed (disk full, I/O error) nothing more is taken: every waiting future and every later
call gets the same `NotReady`.

Not here: what rows mean (`rows.py`), who may write (`lock.py`).
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from selfplay.errors import RunFailed, SelfplayError
from selfplay.ledger import blobs, files, rows, tally
from selfplay.ledger.blobs import Blob
from selfplay.ledger.bulk import LAST_PRUNED
from selfplay.ledger.damage import decoding
from selfplay.ledger.rows import Row
from selfplay.ledger.schema import CLOCK_COLUMNS

WINDOW_SECONDS = 0.02
"""How long the first submission of a group waits for others; DESIGN §2 allows 50 ms to the commit."""

GROUP_ROWS = 2_000
"""A group is not made larger than this."""

_INSERT = {
    table: f"INSERT INTO {table} ({', '.join(columns)}{'' if table in rows.UNTIMED else ', at'}) "
    f"VALUES ({', '.join('?' * (len(columns) + (table not in rows.UNTIMED)))})"
    for table, columns in rows.COLUMNS.items()
}
_FIND = {
    table: f"SELECT {', '.join(rows.COLUMNS[table])} FROM {table} WHERE "
    + " AND ".join(f"{column} = ?" for column in key)
    for table, key in rows.KEYS.items()
}

_GUILTY = (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError)
"""What a row of the wrong content raises: contradictions, types that are no SQL, numbers beyond 64 bits."""

_ORDER = {table: i for i, table in enumerate(rows.COLUMNS)}


class _Refused(Exception):
    """A row contradicts what is there."""


@dataclass(slots=True)
class _Submission:
    rows: Sequence[Row]
    durable: bool = False
    """On the disk before the future is done. Whoever asks for that waits, so a refusal is not kept for `flush`."""
    prompt: bool = False
    """Do not wait for others."""
    last: bool = False
    """Nothing comes after it: the thread ends."""
    prune_before: int | None = None
    future: Future[None] = field(default_factory=Future)
    freed: int = 0


class Writer:
    """Owns the writing connection and its thread."""

    def __init__(self, path: Path) -> None:
        """Open `path`; the caller holds the lock."""
        self._path = path
        with files.translated(path):
            self._connection = files.connect(path)
            self._next_blob = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM blobs").fetchone()[0]
        self._heads = blobs.Heads()
        # note: not SimpleQueue. Before Python 3.13 its `get` with a timeout waits for ever where the thread gets no
        # processor for longer than that.
        self._queue: queue.Queue[_Submission] = queue.Queue()
        self._mutex = threading.Lock()
        self._pending: Future[None] | None = None
        self._failure: SelfplayError | None = None
        self._told = False
        self._refusals: list[RunFailed] = []
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)
        self._thread.start()

    def submit(self, made: Sequence[Row], *, durable: bool = False, prompt: bool = False) -> Future[None]:
        """Queue rows for one commit, all or none; done once committed (`durable`: and on the disk).

        `prompt` commits without waiting for others.

        Raises:
            NotReady, RunFailed: an earlier write failed.
        """
        return self._put(_Submission(rows=made, durable=durable, prompt=durable or prompt)).future

    def flush(self) -> None:
        """Wait until everything submitted is committed.

        Raises:
            RunFailed: a submission was refused since the last flush.
            NotReady: a write failed.
        """
        self._put(_Submission(rows=(), prompt=True)).future.result()
        with self._mutex:
            refusals, self._refusals = self._refusals, []
        if refusals:
            raise refusals[0]

    def settle(self) -> None:
        """Wait until everything submitted is committed or refused; raises nothing."""
        with self._mutex:
            pending = self._pending
            if pending is None or pending.done() or self._failure or self._closed:
                return
            nudge = _Submission(rows=(), prompt=True)
            self._queue.put(nudge)
        with contextlib.suppress(SelfplayError):
            nudge.future.result()

    def prune_logprobs(self, before: int) -> int:
        """Drop log-probabilities of steps below `before`; bytes freed."""
        submission = self._put(_Submission(rows=(), durable=True, prompt=True, prune_before=before))
        submission.future.result()
        return submission.freed

    def finish(self) -> None:
        """Commit what is queued.

        Raises:
            RunFailed, NotReady: something was not committed and nobody has been told.
        """
        with self._mutex:
            if self._closed or self._told:
                return
        self.flush()

    def close(self) -> None:
        """End the thread after what is queued and free the connection; idempotent, raises nothing."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._queue.put(_Submission(rows=(), prompt=True, last=True))
        self._thread.join()
        # note: closing checkpoints; on a full disk that fails, and the rows stay safe in the -wal file.
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _put(self, submission: _Submission) -> _Submission:
        with self._mutex:
            if self._closed:
                raise RunFailed(f"{self._path} is closed", hint="open the run again")
            if self._failure is not None:
                self._told = True
                raise self._failure
            # note: an append cannot be unsaid, so an event loop that gives up waiting must not cancel it.
            submission.future.set_running_or_notify_cancel()
            self._pending = submission.future
            self._queue.put(submission)
        return submission

    # What follows runs on the thread.

    def _work(self) -> None:
        while True:
            group = self._gather()
            if self._failure is None:
                self._commit(group)
            else:
                self._fail(group, self._failure)
            if group[-1].last:
                return

    def _gather(self) -> list[_Submission]:
        group = [self._queue.get()]
        deadline = time.monotonic() + WINDOW_SECONDS
        num_rows = len(group[0].rows)
        while not group[-1].prompt and num_rows < GROUP_ROWS:
            remaining = deadline - time.monotonic()
            try:
                group.append(self._queue.get(timeout=max(0.0, remaining)))
            except queue.Empty:
                break
            num_rows += len(group[-1].rows)
        return group

    def _commit(self, group: list[_Submission]) -> None:
        work = [submission for submission in group if submission.rows or submission.prune_before is not None]
        try:
            if work:
                self._commit_all(work)
        except sqlite3.Error as error:
            self._break(group, error, files.translate(error, self._path))
            return
        except Exception as error:  # noqa: BLE001 (whoever waits must hear of it, whatever it is)
            self._break(group, error, RunFailed(f"writing {self._path} failed: {error!r}", hint="report this"))
            return
        for submission in group:
            if not submission.future.done():
                submission.future.set_result(None)

    def _commit_all(self, work: list[_Submission]) -> None:
        durable = any(submission.durable for submission in work)
        try:
            with self._transaction(durable=durable):
                self._insert([row for submission in work for row in submission.rows])
                for submission in work:
                    self._prune(submission)
        except _GUILTY:
            for submission in work:
                self._commit_one(submission)
        if any(submission.prune_before is not None for submission in work):
            # note: it frees a page a step, and `execute` takes one step of a statement without columns.
            self._connection.executescript("PRAGMA incremental_vacuum")

    def _commit_one(self, submission: _Submission) -> None:
        try:
            with self._transaction(durable=submission.durable):
                for row in sorted(submission.rows, key=lambda row: _ORDER[row.table]):
                    if not self._is_there(row):
                        self._insert([row])
                self._prune(submission)
        except (*_GUILTY, _Refused) as error:
            refusal = _refusal(submission, error)
            if not submission.durable:
                with self._mutex:
                    self._refusals.append(refusal)
            submission.future.set_exception(refusal)

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[None]:
        execute = self._connection.execute
        next_blob = self._next_blob
        # note: with a write-ahead log, FULL syncs the log at this commit, and with it every earlier one.
        execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        execute("BEGIN IMMEDIATE")
        try:
            yield
            execute("COMMIT")
        except BaseException:
            self._next_blob = next_blob
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    def _insert(self, made: Sequence[Row]) -> None:
        """Insert rows, tables in the order in which they refer to each other."""
        now = time.time()
        by_table: dict[str, list[tuple[rows.Value, ...]]] = {}
        for row in made:
            by_table.setdefault(row.table, []).append(row.values)
        packed: list[tuple[int, str, str, bytes]] = []
        for table in rows.BLOB_COLUMNS:
            if table in by_table:
                by_table[table] = [self._with_blob_ids(values, packed) for values in by_table[table]]
        if packed:
            self._connection.executemany("INSERT INTO blobs (id, dtype, codec, data) VALUES (?, ?, ?, ?)", packed)
        for table in rows.COLUMNS:
            if table not in by_table:
                continue
            values = by_table[table]
            if table == "steps":
                values = [self._counted(step) for step in values]
            timed = values if table in rows.UNTIMED else [(*value, now) for value in values]
            self._connection.executemany(_INSERT[table], timed)

    def _with_blob_ids(
        self, values: tuple[rows.Value, ...], packed: list[tuple[int, str, str, bytes]]
    ) -> tuple[rows.Value, ...]:
        with_ids = list(values)
        for i, value in enumerate(values):
            if isinstance(value, Blob):
                packed.append((self._next_blob, *blobs.pack(value, heads=self._heads)))
                with_ids[i] = self._next_blob
                self._next_blob += 1
        return tuple(with_ids)

    def _counted(self, values: tuple[rows.Value, ...]) -> tuple[rows.Value, ...]:
        """A row of `steps` with opening time, tallies and totals, from the rows in this transaction."""
        step, stage_seconds, counts = values[:3]
        assert isinstance(step, int)
        opened = self._connection.execute("SELECT min(at) FROM choices WHERE step = ?", (step,)).fetchone()[0]
        before = self._connection.execute("SELECT totals FROM steps WHERE step = ?", (step - 1,)).fetchone()
        tallies = tally.of_step(self._connection, step)
        with decoding("the totals of a step"):
            totals = tally.add(tally.load(before[0]) if before else {}, tallies)
        return (step, stage_seconds, counts, opened, rows.dump(tally.dump(tallies)), rows.dump(tally.dump(totals)))

    def _is_there(self, row: Row) -> bool:
        """Is a row of the same key and content there? Clock and host columns do not count.

        Raises:
            _Refused: it is there with other content.
        """
        if row.table not in rows.KEYS:
            return False
        columns = rows.COLUMNS[row.table]
        key = [row.values[columns.index(column)] for column in rows.KEYS[row.table]]
        found = self._connection.execute(_FIND[row.table], key).fetchone()
        if found is None:
            return False
        computed = ("opened_at", "tallies", "totals") if row.table == "steps" else ()
        for column, new, old in zip(columns, row.values, found, strict=True):
            if column in CLOCK_COLUMNS or column in computed:
                continue
            if not (self._holds(old, new) if isinstance(new, Blob) else old == new):
                raise _Refused(f"{row.table} {_named(row)} is there with another {column}")
        return True

    def _holds(self, blob_id: int | None, blob: Blob) -> bool:
        """Does the blob of that id hold this, or did it before it was pruned?"""
        if blob_id is None:
            return False
        found = self._connection.execute("SELECT dtype, codec, data FROM blobs WHERE id = ?", (blob_id,)).fetchone()
        with decoding("a blob"):
            return found[2] is None or blobs.unpack(*found)[:2] == blob[:2]

    def _prune(self, submission: _Submission) -> None:
        if submission.prune_before is None:
            return
        # note: what is pruned already is not looked at again, so that the cost does not grow with the run.
        (done,) = self._connection.execute(LAST_PRUNED).fetchone()
        which = (
            "id IN (SELECT logprobs FROM trajectories WHERE step > :done AND step < :step AND stage <> 'evaluate' "
            "UNION ALL SELECT old_logprobs FROM updates WHERE step > :done AND step < :step AND phase = 'play') "
            "AND data IS NOT NULL"
        )
        given = {"done": done, "step": submission.prune_before}
        size = self._connection.execute(f"SELECT coalesce(sum(length(data)), 0) FROM blobs WHERE {which}", given)
        submission.freed = size.fetchone()[0]
        self._connection.execute(f"UPDATE blobs SET data = NULL WHERE {which}", given)

    def _break(self, group: list[_Submission], error: Exception, failure: SelfplayError) -> None:
        failure.__cause__ = error
        with self._mutex:
            self._failure = failure
        self._fail(group, failure)

    def _fail(self, group: list[_Submission], failure: SelfplayError) -> None:
        for submission in group:
            if not submission.future.done():
                submission.future.set_exception(failure)


def _named(row: Row) -> str:
    columns = rows.COLUMNS[row.table]
    return " ".join(f"{column}={row.values[columns.index(column)]}" for column in rows.KEYS[row.table])


def _refusal(submission: _Submission, error: Exception) -> RunFailed:
    own = next((row for row in submission.rows if row.table in rows.KEYS), None)
    what = f"{own.table} {_named(own)}" if own else "a row"
    if isinstance(error, sqlite3.IntegrityError) and "FOREIGN KEY" in str(error):
        why = "it refers to a row that does not exist"
    else:
        why = str(error)
    return RunFailed(
        f"the ledger refused {what}: {why}", hint="this is a fault of the engine: nothing of that call was recorded"
    )
