"""The schema, its comments and its document."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from pathlib import Path

import pytest

import selfplay
from selfplay.ledger import compare, rows, schema
from selfplay.types import Choice, Save, Seed, Task, Verdict

README = Path(selfplay.__file__).parents[1] / "runs" / "README.md"


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:")
    for statement in schema.statements():
        made.execute(statement)
    yield made
    made.close()


def tables(connection: sqlite3.Connection) -> dict[str, list[str]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}


def test_the_document_is_current():
    assert README.read_text() == schema.document(), "run the command at the head of runs/README.md"


def test_every_table_and_column_is_documented(connection):
    document = schema.document()
    for table, columns in tables(connection).items():
        section = document.split(f"\n### {table}\n", 1)[1].split("\n### ", 1)[0]
        assert section.split("\n| column |")[0].strip().endswith(".")
        for column in columns:
            (line,) = (line for line in section.splitlines() if line.startswith(f"| `{column}` |"))
            assert line.count("|") == 4
            assert len(line.split("|")[3].strip()) > 3


def test_versions_count_migrations():
    assert len(schema.migrations()._migrations) == schema.VERSION


def test_every_table_is_strict_and_written_whole(connection):
    strict = {row[1] for row in connection.execute("PRAGMA table_list") if row[5]}
    found = tables(connection)
    assert strict == set(found) == {*rows.COLUMNS, "runs", "blobs"}
    for table, columns in rows.COLUMNS.items():
        given = {*columns, *(() if table in rows.UNTIMED else ("at",))}
        assert given == set(found[table]) - ({"id"} - set(columns))


def test_every_table_but_blobs_is_append_only(connection):
    assert set(schema.APPENDED) == set(tables(connection)) - {"blobs"}


def test_clock_columns_and_tables_left_out_exist(connection):
    found = tables(connection)
    assert set().union(*found.values()) >= schema.CLOCK_COLUMNS
    assert set(found) >= compare.LEFT_OUT


@pytest.mark.parametrize(
    ("record", "table", "renamed"),
    [
        (Seed, "seeds", {}),
        (Choice, "choices", {"index": "position"}),
        (Task, "tasks", {}),
        (Verdict, "verdicts", {}),
        (Save, "saves", {}),
    ],
)
def test_columns_carry_the_names_of_fields(record, table, renamed):
    assert {renamed.get(field.name, field.name) for field in fields(record)} == set(rows.COLUMNS[table])


def test_the_indexes_serve_the_questions(connection):
    for sql in (
        "SELECT 1 FROM trajectories WHERE step > 3",
        "SELECT 1 FROM trajectories WHERE step = 3 AND stage = 'attempt'",
        "SELECT 1 FROM trajectories WHERE subject_id = 'x'",
        "SELECT 1 FROM trajectories WHERE id >= 'a' AND id < 'b'",
        "SELECT 1 FROM verdicts WHERE trajectory_id = 'x'",
        "SELECT 1 FROM turns WHERE trajectory_id = 'x'",
        "SELECT 1 FROM group_members WHERE trajectory_id = 'x'",
        "SELECT 1 FROM tasks WHERE step = 3",
        "SELECT max(step) FROM steps",
        "SELECT subject_id, count(*) FROM choices WHERE mode = 'propose' AND step < 9 GROUP BY subject_id",
    ):
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
        assert "SEARCH" in plan, (sql, plan)
        assert "TEMP B-TREE" not in plan, (sql, plan)
