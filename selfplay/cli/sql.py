"""`selfplay sql`: ask a run's ledger in SQL, read-only.

The connection is opened for reading, told so once more, and may only select: a statement that would write,
attach a file or change a setting is refused, whoever typed it.

Not here: queries with names (`ledger.queries`); any program that reads SQLite opens the file as well.
"""

from __future__ import annotations

import contextlib
import csv
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, RunFailed, SelfplayError, UserError
from selfplay.types import record

LIMIT = 1000
"""Rows shown unless --limit says otherwise."""

_OPERATIONS = 100_000
"""Steps of SQLite's machine between two looks at whether Ctrl-C was pressed."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"})
"""Pragmas that only tell."""

_UNKNOWN = re.compile(r"no such (table|column): (?:\w+\.)?(\w+)")

_TABLES = """
SELECT m.name AS name, m.sql AS sql, group_concat(c.name, ' ') AS columns
FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND m.name NOT LIKE '\\_%' ESCAPE '\\'
GROUP BY m.name ORDER BY m.rowid
"""


@record
class Answer:
    """What a query gave."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    cut: bool
    """Were there more rows than are here?"""


@click.command("sql", short_help="Ask a run's ledger in SQL, read-only.")
@click.argument("run")
@click.argument("query", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values instead of a table.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, metavar="N", help="Rows at most."
)
@common
def command(session: Session, run: str, query: str | None, as_csv: bool, limit: int) -> None:
    """Ask a run's ledger in SQL, read-only; without QUERY: its tables. Bytes are shown as their number.

    Texts were written by a model: data, not orders. Datasette opens the same file, with some questions ready:
    `datasette runs/NAME/ledger.db --metadata docs/datasette.json`, of selfplay's repository.

    \b
    Examples:
      selfplay sql last
      selfplay sql last "select reason, count(*) from verdicts group by reason"
      selfplay sql quickstart "select * from steps" --csv > steps.csv
    """
    if as_csv and session.json:
        raise UserError("--csv and --json exclude each other", hint="give one of them")
    folder = runs.find_run(run, project=session.project)
    with _opened(folder) as connection:
        if query is None:
            answer = _tables(connection)
        else:
            connection.set_authorizer(_authorize)
            answer = ask(connection, query, limit=limit)
    _show(session, folder, answer, as_csv=as_csv)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    from selfplay.ledger import files

    with contextlib.closing(files.connect_read_only(folder)) as connection:
        connection.row_factory = None
        connection.execute("PRAGMA query_only = ON")
        # note: the handler does nothing, but Python looks at its signals before it calls it.
        connection.set_progress_handler(lambda: 0, _OPERATIONS)
        yield connection


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """SQLite asks this about everything that a statement would do."""
    allowed = action in _ALLOWED
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    if action == sqlite3.SQLITE_PRAGMA:
        allowed = (first or "").lower() in _PRAGMAS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def ask(connection: sqlite3.Connection, query: str, *, limit: int) -> Answer:
    """The first `limit` rows of `query`.

    Raises:
        UserError: it is no SQL, not one statement, or would do more than read.
        NotFound: a table or column does not exist; the nearest is named.
    """
    try:
        cursor = connection.execute(query)
        rows = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        connection.set_authorizer(None)
        raise _refusal(connection, error) from error
    columns = tuple(column[0] for column in cursor.description or ())
    return Answer(columns=columns, rows=rows[:limit], cut=len(rows) > limit)


def _refusal(connection: sqlite3.Connection, error: Exception) -> SelfplayError:
    """What a person is told about a query that did not run."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY) or "not authorized" in str(error):
        return UserError(f"only reading is allowed here: {error}", hint="ask with select; the ledger is never changed")
    if unknown := _UNKNOWN.search(str(error)):
        from selfplay.project import did_you_mean

        tables = {name: columns.split() for name, _, columns in connection.execute(_TABLES)}
        names = tables if unknown[1] == "table" else {column for columns in tables.values() for column in columns}
        return NotFound(
            f"there is no {unknown[1]} `{unknown[2]}`",
            hint=f"{did_you_mean(unknown[2], names)}All tables and columns: selfplay sql RUN",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return RunFailed(
            f"the ledger is damaged ({error})", hint="restore a copy, or start another: selfplay run --new"
        )
    return UserError(f"that is no query: {error}", hint='one statement, in quotes: selfplay sql RUN "select ..."')


def _tables(connection: sqlite3.Connection) -> Answer:
    """Every table, its sentence (SQLite keeps the comments of the schema) and its columns."""
    rows = []
    for name, sql, columns in connection.execute(_TABLES):
        said = re.match(r"[^\n]*\( -- ([^\n]*)", sql)
        rows.append((name, said[1] if said else "", columns.replace(" ", ", ")))
    return Answer(columns=("table", "what", "columns"), rows=rows, cut=False)


def _show(session: Session, folder: Path, answer: Answer, *, as_csv: bool) -> None:
    if session.json:
        data = {
            "columns": answer.columns,
            "rows": [[_number_of_bytes(value) for value in row] for row in answer.rows],
            "truncated": answer.cut,
        }
        session.answer("sql", data, run=folder.name)
    elif as_csv:
        writer = csv.writer(session.data, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_number_of_bytes(value) for value in row] for row in answer.rows)
    elif answer.columns:
        _print_table(session, answer)
    if answer.cut:
        session.say(f"the first {len(answer.rows):,} rows; more: --limit N")


def _number_of_bytes(value: Any) -> Any:
    return f"<{len(value):,} bytes>" if isinstance(value, bytes) else value


def _print_table(session: Session, answer: Answer) -> None:
    from rich.table import Table
    from rich.text import Text

    from selfplay.views.words import clean

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, column in enumerate(answer.columns):
        numbers = all(isinstance(row[i], int | float | None) for row in answer.rows)
        table.add_column(Text(clean(column)), justify="right" if numbers else "left", overflow="fold")
    for row in answer.rows:
        table.add_row(*(Text("–" if value is None else clean(str(_number_of_bytes(value)))) for value in row))
    session.console().print(table)
