"""The ledger: everything that happens in a run, appended to one SQLite file and never changed.

What state a thing is in follows from which rows exist. `Ledger` is the one writer of a run (a lock
makes sure) and can be asked everything a `Reader` can; `Ledger.read` opens a run for reading only.

    append(...)    one thread commits in groups, at most 50 ms after the call: safe against `kill -9`
    close_step     groups, update and the step's row in one transaction, on the disk when it returns
    reads          by named queries (`queries.py`), in short transactions, standard library only

One `append` call is all or nothing. Appending the same content again does nothing; other content
under the same id is refused. Nothing is lost silently: after a write failed, every call says so.

Not here: the schema (`schema.py`), record <-> row (`rows.py`), the thread (`writer.py`), the lock
(`lock.py`), making and migrating files (`files.py`), what a row means for learning (`loop`).

Example:
    >>> with Ledger.create(folder, config_digest="c0", config={}, seed=0, game="echo") as ledger:
    ...     ledger.append(seed).result()
    ...     ledger.seeds() == (seed,)
    True
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from selfplay import __version__
from selfplay.ledger import files, rows
from selfplay.ledger.lock import Lock
from selfplay.ledger.queries import Reader
from selfplay.ledger.records import (
    AlarmRow,
    ControlRow,
    FaultRow,
    Launch,
    Level,
    ParentRow,
    RunRow,
    Status,
    StepRow,
    Tallies,
    Tally,
)
from selfplay.types import Choice, Fault, Group, Save, Seed, Task, Trajectory, Update, Verdict

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "AlarmRow",
    "ControlRow",
    "FaultRow",
    "Launch",
    "Ledger",
    "ParentRow",
    "Reader",
    "RunRow",
    "Status",
    "StepRow",
    "Tallies",
    "Tally",
]


class Ledger(Reader):
    """The writer of one run; also a `Reader` that sees all that was appended through it before the question.

    Every method may be called from any thread.
    """

    def __init__(self, folder: Path, *, lock: Lock) -> None:
        """Use `create` or `open`; `lock` is held and passes to the ledger."""
        # note: imported here, since whoever only reads a run, as every screen does, needs no part of it.
        from selfplay.ledger.writer import Writer

        self._writer = Writer(folder / files.NAME)
        self._lock = lock
        self._launch_ended = False
        launch = rows.launch(pid=os.getpid(), host=socket.gethostname(), engine_version=__version__)
        try:
            super().__init__(folder)
            self._writer.submit([launch], prompt=True).result()
            self._launch_id = self.launches()[-1].id
        except BaseException:
            self._shut()
            raise

    @classmethod
    def create(cls, folder: Path, *, config_digest: str, config: Mapping[str, Any], seed: int, game: str) -> Ledger:
        """Make a run's ledger in `folder` (made where missing) and hold it.

        Raises:
            UserError: there is one already.
            Held: another process is making or holding it.
            NotReady: the disk is full, or the folder cannot be written.
        """
        lock = Lock.take(folder)
        try:
            files.create(folder, config_digest=config_digest, config=config, seed=seed, game=game)
            return cls(folder, lock=lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Hold an existing run and go on with it; an older schema is migrated, with a copy left beside it.

        Raises:
            NotFound: there is no ledger in `folder`.
            Held: another live process holds it; the message names it.
            UserError: a newer version of selfplay wrote it.
            RunFailed: the file is damaged, or is no ledger.
        """
        files.require(folder)
        lock = Lock.take(folder)
        try:
            files.migrate(folder)
            return cls(folder, lock=lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read(cls, folder: Path) -> Reader:
        """Open a run for reading, while another process may write it.

        Raises:
            NotFound, UserError, RunFailed: as `open`.
        """
        return Reader(folder)

    # What is appended.

    def append(self, *records: Seed | Choice | Task | Trajectory | Verdict | Group) -> Future[None]:
        """Append `records`, all or none; the future is done once they are committed.

        The conversion happens before it returns; nothing has to wait for the future, since a record
        that was refused is raised again by `flush`, `close_step` and `close`.

        Raises:
            ValueError: a record holds what cannot be stored (NaN, a mapping that is not JSON).
            NotReady: an earlier write failed (disk full, I/O error).

        The future's exceptions:
            RunFailed: an id exists with other content, a record refers to one that does not exist, or
                it belongs to a closed step.
            NotReady: the write failed.
        """
        return self._writer.submit([row for record in records for row in rows.of(record)])

    def append_fault(self, fault: Fault, *, trajectory_id: str | None = None, attempt: int = 0) -> Future[None]:
        """Record a fault that was (or will be) retried; verdicts and trajectories carry their own last one."""
        return self._writer.submit(
            [rows.fault(fault, trajectory_id=trajectory_id, attempt=attempt, launch_id=self._launch_id)]
        )

    def append_alarm(self, *, level: Level, code: str, message: str, step: int | None = None) -> Future[None]:
        """Record something a person should look at."""
        return self._writer.submit([rows.alarm(level=level, code=code, message=message, step=step)])

    def append_control(self, *, action: str, arguments: Mapping[str, Any]) -> Future[None]:
        """Record a line of `control.jsonl` that was acted on."""
        return self._writer.submit([rows.control(action=action, arguments=arguments)])

    def append_origins(self, origins: Mapping[str, str]) -> Future[None]:
        """Record what the run plays with: name -> digest; what is recorded stays."""
        return self._writer.submit([rows.origin(name, digest) for name, digest in origins.items()])

    def record_update(self, update: Update) -> Future[None]:
        """Append an update of the warm-up; a step's update is committed by `close_step`.

        Raises:
            ValueError: it is not of phase `warmup`.
        """
        if update.phase != "warmup":
            raise ValueError(f"an update of phase `{update.phase}` is committed by close_step")
        return self._writer.submit(rows.of(update))

    def append_save(self, save: Save, *, warmup: Sequence[Update] = ()) -> None:
        """Append `save`, with the updates of the `warmup` that led to it; all is on the disk when this returns."""
        made = [row for record in (*warmup, save) for row in rows.of(record)]
        self._writer.submit(made, durable=True).result()

    def close_step(
        self,
        *,
        step: int,
        groups: Sequence[Group],
        update: Update | None,
        stage_seconds: Mapping[str, float],
        counts: Mapping[str, float],
    ) -> None:
        """Commit groups, update and the step's row in one transaction; all is on the disk when this returns.

        The ledger counts the step's rows itself (`StepRow.tallies`); `counts` is kept as given.

        Raises:
            ValueError: the update or a group is of another step, or the update is of another phase.
            RunFailed: the step is closed with other content, an earlier one is open, or a record
                appended before was refused.
            NotReady: a write failed.
        """
        if update is not None and (update.phase != "play" or update.step != step):
            raise ValueError(f"step {step} cannot be closed by update {update.step} of phase {update.phase}")
        if strange := [group.step for group in groups if group.step != step]:
            raise ValueError(f"step {step} cannot be closed with a group of step {strange[0]}")
        records = [row for record in (*groups, *([update] if update else [])) for row in rows.of(record)]
        closing = rows.step(step=step, stage_seconds=stage_seconds, counts=counts)
        self._writer.flush()
        self._writer.submit([*records, closing], durable=True).result()

    def flush(self) -> None:
        """Wait until everything appended so far is committed.

        Raises:
            RunFailed: a record appended since the last flush was refused.
            NotReady: a write failed.
        """
        self._writer.flush()

    def prune_logprobs(self, *, before: int) -> int:
        """Drop the log-probabilities of trajectories and updates of steps below `before`; returns bytes freed.

        Token ids and text stay. Only for steps that no retained save or fork needs re-applied.
        """
        return self._writer.prune_logprobs(before)

    # How it ends.

    def end_launch(self, how: str) -> None:
        """Record that this process lets go of the run, and `how` it ended (`done`, `stopped`, `failed`); once."""
        if not self._launch_ended:
            self._launch_ended = True
            self._writer.submit([rows.launch_end(self._launch_id, how=how)], durable=True).result()

    def close(self) -> None:
        """Commit what is queued, free the file and the lock; idempotent.

        Raises:
            RunFailed, NotReady: something appended was not committed and nobody has been told yet.
        """
        try:
            self._writer.finish()
        finally:
            self._shut()

    def _shut(self) -> None:
        # note: the writer's connection goes last, since only a writing one can fold the -wal file in.
        super().close()
        self._writer.close()
        self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._writer.settle()
            self._shut()

    def _before_read(self) -> None:
        self._writer.settle()
