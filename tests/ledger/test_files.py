"""Files that are whole, missing, foreign, damaged, older, newer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.ledger import Ledger, files, schema


@pytest.fixture(params=[Ledger.open, Ledger.read])
def opening(request):
    return request.param


def test_a_half_made_ledger_is_no_run(folder, create, opening, make):
    folder.mkdir()
    for suffix in ("", "-wal", "-journal"):
        (folder / f"ledger.db.new{suffix}").write_bytes(b"half")
    with pytest.raises(NotFound):
        opening(folder)
    with create(folder) as ledger:
        ledger.append(make.seed())
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.db", "ledger.lock"]
    opening(folder).close()


@pytest.mark.parametrize("content", [b"", b"garbage " * 500, "foreign"])
def test_what_is_no_ledger_is_named(folder, opening, content):
    folder.mkdir()
    path = folder / "ledger.db"
    if content == "foreign":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE seeds (id)")
        connection.commit()
        connection.close()
    else:
        path.write_bytes(content)
    with pytest.raises(RunFailed, match=r"ledger\.db is damaged or no ledger"):
        opening(folder)


def test_a_damaged_ledger_is_named(folder, create, make, opening):
    with create(folder) as ledger:
        for step in range(3):
            make.step(ledger, step)
    path = folder / "ledger.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    with pytest.raises(RunFailed, match=r"ledger\.db is damaged"), opening(folder) as reader:
        reader.step_rows()


def test_a_truncated_ledger_is_named(folder, create, make, opening):
    with create(folder) as ledger:
        for step in range(3):
            make.step(ledger, step)
    path = folder / "ledger.db"
    path.write_bytes(path.read_bytes()[: -5 * 4096])
    with pytest.raises(RunFailed, match=r"ledger\.db is damaged"), opening(folder) as reader:
        reader.check()


def test_a_newer_schema_is_refused_with_both_versions(folder, create, opening):
    create(folder).close()
    connection = sqlite3.connect(folder / "ledger.db")
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 6}")
    connection.close()
    with pytest.raises(UserError, match=rf"has schema {schema.VERSION + 6}, and .* up to {schema.VERSION}"):
        opening(folder)


def with_one_more(then) -> Migrations:
    migrations = schema.migrations()
    migrations(name="m999")(then)
    return migrations


def test_an_older_schema_is_migrated_and_a_copy_kept(folder, create, make):
    with create(folder) as ledger:
        make.step(ledger, 0)
        before = ledger.comparable()

    def add_column(db: Database) -> None:
        db.execute("ALTER TABLE alarms ADD COLUMN extra TEXT")

    files.migrate(folder, migrations=with_one_more(add_column))
    connection = sqlite3.connect(folder / "ledger.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION + 1,)
    assert connection.execute("SELECT count(extra) FROM alarms").fetchone() == (0,)
    connection.close()

    (folder / f"ledger.v{schema.VERSION}.db").replace(folder / "ledger.db")
    with Ledger.open(folder) as ledger:
        assert ledger.comparable() == before
        assert ledger.check() == ()


def test_a_failed_migration_leaves_the_file_as_it_was(folder, create, make):
    with create(folder) as ledger:
        make.step(ledger, 0)
        before = ledger.comparable()

    def fail(db: Database) -> None:
        db.execute("ALTER TABLE alarms ADD COLUMN extra TEXT")
        db.execute("CREATE TABLE alarms (id)")

    with pytest.raises(
        RunFailed, match=rf"from schema {schema.VERSION} to {schema.VERSION + 1} .*already exists.* as it was"
    ):
        files.migrate(folder, migrations=with_one_more(fail))
    with Ledger.open(folder) as ledger:
        assert ledger.comparable() == before


def test_a_reader_of_an_older_schema_says_what_to_do(folder, create, monkeypatch):
    create(folder).close()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(UserError, match=f"has schema {schema.VERSION - 1}, and this selfplay reads {schema.VERSION}"):
        Ledger.read(folder)


def written_by_version_1(folder: Path, create, make) -> None:
    """A run as version 1 wrote it: its tables, with the rows of a run of today."""
    with create(folder) as ledger:
        make.step(ledger, 0)
    old = sqlite3.connect(folder / "first.db")
    old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    old.execute("PRAGMA auto_vacuum = INCREMENTAL")
    sql = (Path(__file__).parent / "schema_v1.sql").read_text()
    tables, guards = sql.split("CREATE TRIGGER", 1)
    old.executescript(tables)
    old.execute("ATTACH ? AS now", (str(folder / "ledger.db"),))
    for table in ("runs", "blobs", *schema.FIRST_APPENDED[1:]):
        columns = ", ".join(row[1] for row in old.execute(f"PRAGMA main.table_info({table})"))
        old.execute(f"INSERT INTO {table} SELECT {columns} FROM now.{table}")
    old.commit()
    old.execute("DETACH now")
    old.executescript(f"CREATE TRIGGER{guards}")
    Database(old, execute_plugins=False)["_sqlite_migrations"].insert_all(
        [{"id": 1, "migration_set": "selfplay", "name": "m001_first", "applied_at": "2026-01-01 00:00:00+00:00"}],
        pk="id",
    )
    old.execute("PRAGMA user_version = 1")
    old.execute("PRAGMA journal_mode = WAL")
    old.close()
    (folder / "first.db").replace(folder / "ledger.db")


def test_version_1_is_frozen():
    kept = (Path(__file__).parent / "schema_v1.sql").read_text().split("\n", 1)[1]
    assert kept == "".join(f"{statement};\n" for statement in schema.first())


def test_a_real_file_of_version_1_is_migrated(folder, create, make):
    written_by_version_1(folder, create, make)
    with pytest.raises(UserError, match=f"has schema 1, and this selfplay reads {schema.VERSION}"):
        Ledger.read(folder)
    with Ledger.open(folder) as ledger:
        assert ledger.check() == ()
        assert ledger.parent_row() is None
        assert ledger.last_closed_step() == 0
        states = ledger._rows("SELECT state, count(*) AS num FROM trajectory_states GROUP BY state")
        assert {row["state"]: row["num"] for row in states} == {"graded": 3}
        make.step(ledger, 1)
    copy = sqlite3.connect(folder / "ledger.v1.db")
    assert copy.execute("PRAGMA user_version").fetchone() == (1,)
    assert copy.execute("SELECT count(*) FROM steps").fetchone() == (1,)
    copy.close()
    made, migrated = folder.with_name("made"), set(objects(folder))
    create(made).close()
    assert migrated == set(objects(made))


def objects(folder: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(folder / "ledger.db")
    try:
        return connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE '%sqlite%'").fetchall()
    finally:
        connection.close()
