"""Making, opening and migrating the file: whole or not at all, and every failure in one sentence.

A new ledger is written under another name and renamed; a migration is one transaction, with a copy of
the old file left beside. Connections for reading never write and never migrate.

Not here: the tables (`schema.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay import __version__
from selfplay.errors import NotFound, NotReady, RunFailed, SelfplayError, UserError
from selfplay.ledger import rows, schema
from selfplay.ledger.damage import said
from selfplay.ledger.lock import LOCAL

if TYPE_CHECKING:
    from sqlite_utils.migrations import Migrations

NAME = "ledger.db"

_BUSY_SECONDS = 30.0
"""How long a statement waits for another program's lock."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR}


_NO_LOCKS = {
    *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_IOERR_UNLOCK),
    *(sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK, sqlite3.SQLITE_IOERR_SHMLOCK, sqlite3.SQLITE_IOERR_SHMMAP),
    *(sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_NOLFS),
}
"""What network file systems without locks or shared memory answer."""


def _rescue(path: Path) -> str:
    run = path.parent.name
    return (
        f"save what is whole in a new run: selfplay check {run} --salvage {run}-2\n"
        f"      or restore a copy of the file, or start another: selfplay run --new"
    )


def translate(error: Exception, path: Path) -> SelfplayError:
    """What a person is told about a failure of SQLite on `path`, or about what cannot be decoded there."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if extended in _NO_LOCKS:
        return NotReady(f"{path} lies where SQLite cannot lock it ({error})", hint=LOCAL)
    if code == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR:
        return NotReady(
            f"cannot write {path}: disk full or failing ({error})",
            hint="free space (df -h), then type the same command again: nothing that was recorded is lost",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return NotReady(f"another program keeps {path} locked ({error})", hint="close it, then type the command again")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return NotReady(f"cannot open {path} ({error})", hint="look at its owner and permissions")
    if code in _DAMAGED:
        return RunFailed(f"{path} is damaged ({said(error)})", hint=_rescue(path))
    return RunFailed(f"{path}: {error}", hint="nothing was changed by the refused call")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors inside, and what cannot be decoded there, become errors for a person."""
    try:
        yield
    except sqlite3.ProgrammingError:
        # note: a closed connection or wrong SQL is the engine's fault, not the file's.
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # note: what SQLite says of a damaged schema quotes it, and may be no text.
        raise translate(error, path) from error


def require(folder: Path) -> None:
    """There is a ledger in `folder`.

    Raises:
        NotFound: there is none.
        RunFailed: what is there is no ledger.
    """
    path = folder / NAME
    try:
        if not path.is_file():
            raise NotFound(f"there is no run in {folder}", hint="all runs: selfplay ls runs")
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise NotReady(f"cannot read {path}: {error.strerror}", hint="look at its owner and permissions") from error
    if head[:16] != b"SQLite format 3\0" or int.from_bytes(head[68:72], "big") != schema.APPLICATION_ID:
        raise RunFailed(f"{path} is damaged or no ledger", hint=_rescue(path))


def remains(folder: Path, *, besides: Sequence[str] = ()) -> tuple[str, ...]:
    """What lies in `folder` that belongs to a ledger which is not there: its newest rows, saves; `besides` do not."""
    if (folder / NAME).exists():
        return ()
    saves = [path.name for path in (folder / "weights").glob("*") if not path.name.startswith(".")]
    found = [f"weights/{name}" for name in saves if name not in besides]
    wal = folder / f"{NAME}-wal"
    return tuple(sorted([*found, *([wal.name] if wal.is_file() and wal.stat().st_size else [])]))


def lost(folder: Path, kept: Sequence[str]) -> RunFailed:
    """What a person is told who would start a run over the remains of another."""
    shown = ", ".join(kept[:3]) + (", ..." if len(kept) > 3 else "")
    return RunFailed(
        f"the ledger of run `{folder.name}` is gone, and {shown} is still there: a run without its ledger cannot go on",
        hint=f"put {NAME} back (ledger.vN.db is a copy made before a migration), "
        f"or start another: selfplay run --name NAME; each folder of weights opens by itself as a model",
    )


def create(
    folder: Path, *, config_digest: str, config: Mapping[str, Any], seed: int, game: str, born: Sequence[rows.Row] = ()
) -> None:
    """Write an empty ledger with its run row, and with the rows it is `born` with; the caller holds the lock.

    Raises:
        UserError: there is one.
        NotReady: it cannot be written.
    """
    path, aside = folder / NAME, folder / f"{NAME}.new"
    if path.exists():
        raise UserError(f"there is a run in {folder} already", hint="resume it, or start another: selfplay run --new")
    with translated(path):
        try:
            remove(aside)
            run = (config_digest, rows.dump(config), seed, game, schema.VERSION, __version__, time.time())
            write(aside, run, born)
            sync(aside)
            aside.rename(path)
            sync(folder)
        except OSError as error:
            raise NotReady(f"cannot write {path}: {error.strerror}", hint="see what is full: df -h") from error
        finally:
            remove(aside)


def migrate(folder: Path, *, migrations: Migrations | None = None) -> None:
    """Bring an older schema up to date; the caller holds the lock. `migrations` is `schema.migrations()`.

    Raises:
        UserError: the schema is newer than this engine.
        RunFailed: the file is damaged, or a migration failed; the file is as it was.
    """
    path = folder / NAME
    target = schema.VERSION if migrations is None else len(migrations._migrations)
    with translated(path), contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        version = _version(connection, path, newest=target)
        if version == target:
            return
        backup = folder / f"ledger.v{version}.db"
        aside = backup.with_suffix(".new")
        remove(aside)
        with contextlib.closing(sqlite3.connect(aside)) as copy:
            connection.backup(copy)
        sync(aside)
        aside.rename(backup)
        try:
            _apply(connection, migrations or schema.migrations(), version=target)
        except sqlite3.Error as error:
            raise RunFailed(
                f"{path} could not be migrated from schema {version} to {target} ({error}); it is as it was",
                hint=f"use the version of selfplay that wrote it; a copy of it is {backup.name}",
            ) from error


def connect(path: Path) -> sqlite3.Connection:
    """The writer's connection; it may be used from any one thread at a time."""
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for pragma in ("synchronous = NORMAL", "foreign_keys = ON", "cache_size = -32768", "journal_size_limit = 67108864"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def connect_read_only(folder: Path) -> sqlite3.Connection:
    """A connection that cannot write, checked to hold a schema that this engine reads.

    Raises:
        NotFound, UserError, RunFailed: as `require` and `migrate`; an older schema is a UserError too.
    """
    require(folder)
    path = folder / NAME
    with translated(path):
        try:
            connection = open_read_only(path, "mode=ro")
        except sqlite3.OperationalError:
            # note: on read-only media SQLite cannot make the shared-memory file; a closed ledger needs none.
            wal = path.with_name(f"{NAME}-wal")
            if wal.exists() and wal.stat().st_size:
                raise
            connection = open_read_only(path, "mode=ro&immutable=1")
        try:
            version = _version(connection, path, newest=schema.VERSION)
            if version < schema.VERSION:
                raise UserError(
                    f"{path} has schema {version}, and this selfplay reads {schema.VERSION}",
                    hint="resume the run once, which migrates it and leaves a copy",
                )
        except BaseException:
            connection.close()
            raise
    return connection


def open_read_only(path: Path, query: str) -> sqlite3.Connection:
    """A connection that cannot write, of whatever schema; `query` is the URI's."""
    uri = f"{path.absolute().as_uri()}?{query}"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    connection.row_factory = sqlite3.Row
    return connection


def _version(connection: sqlite3.Connection, path: Path, *, newest: int) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > newest:
        raise UserError(
            f"{path} has schema {version}, and this selfplay {__version__} knows schemas up to {newest}",
            hint="use the version of selfplay that wrote it, or a newer one",
        )
    return version


def write(path: Path, run: tuple[str | int | float, ...], born: Sequence[rows.Row] = ()) -> None:
    """Write a new ledger with that row of `runs`, without its id, and the rows it is `born` with."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        _apply(connection, schema.migrations(), version=schema.VERSION)
        with connection:
            connection.execute("INSERT INTO runs VALUES (1, ?, ?, ?, ?, ?, ?, ?)", run)
            for row in born:
                columns = (*rows.COLUMNS[row.table], "at")
                sql = f"INSERT INTO {row.table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                connection.execute(sql, (*row.values, run[-1]))
        connection.execute("PRAGMA journal_mode = WAL")


def _apply(connection: sqlite3.Connection, migrations: Migrations, *, version: int) -> None:
    from sqlite_utils import Database

    db = Database(connection, execute_plugins=False)
    with db.atomic():
        migrations.apply(db)
        db.execute(f"PRAGMA user_version = {version}")


def sync(path: Path) -> None:
    """Bring a file or a folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Remove a file of SQLite, and what belongs to it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
