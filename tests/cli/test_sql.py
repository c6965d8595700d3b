from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger

Typed = tuple[int, str, str]


def test_without_a_query_it_says_what_there_is(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    code, out, _ = typed("sql", "toy")
    assert code == 0
    assert all(len(row) <= 80 for row in out.splitlines())
    rows = {name: (what, columns) for name, what, columns in answered("sql", "toy")["rows"]}
    assert rows["seeds"][1] == "id, game, source, payload, split, at"
    assert all(what.endswith(".") for what, _ in rows.values())
    assert not any(name.startswith(("sqlite", "_")) for name in rows)


def test_rows_as_a_table_as_csv_and_as_json(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    query = "select source, at, null as empty from seeds order by source limit 2"
    code, out, _ = typed("sql", "toy", query)
    assert code == 0
    assert [row.split()[0] for row in out.splitlines()] == ["source", "echo:0", "echo:1"]
    rows = list(csv.reader(io.StringIO(typed("sql", "toy", query, "--csv")[1])))
    assert rows[0] == ["source", "at", "empty"]
    assert rows[1][0] == "echo:0"
    data = answered("sql", "toy", query)
    assert data["columns"] == ["source", "at", "empty"]
    assert [row[0] for row in data["rows"]] == ["echo:0", "echo:1"]
    assert data["rows"][0][2] is None
    assert data["truncated"] is False


def test_bytes_are_their_number_and_control_characters_are_visible(with_run: Path, typed: Callable[..., Typed]) -> None:
    assert "<3 bytes>" in typed("sql", "toy", "select x'010203' as data")[1]
    assert "\\x1b[31m" in typed("sql", "toy", "select char(27) || '[31m' as text")[1]


def test_a_long_answer_is_cut_and_says_so(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    query = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n"
    code, out, err = typed("sql", "toy", query, "--csv")
    assert code == 0
    assert len(out.splitlines()) == 1001
    assert err == "the first 1,000 rows; more: --limit N\n"
    data = answered("sql", "toy", query, "--limit", "5")
    assert (len(data["rows"]), data["truncated"]) == (5, True)


@pytest.mark.parametrize(
    "query",
    [
        "delete from seeds",
        "insert into alarms(level, code, message, at) values ('note', 'x', 'x', 0)",
        "create temp table t(a)",
        "attach 'other.db' as other",
        "vacuum into 'other.db'",
        "pragma query_only = off",
        "pragma journal_mode = delete",
        "select load_extension('x')",
        "begin immediate",
    ],
)
def test_only_reading_is_allowed(with_run: Path, typed: Callable[..., Typed], query: str) -> None:
    before = (with_run / "runs" / "toy" / "ledger.db").read_bytes()
    code, out, err = typed("sql", "toy", query)
    assert (code, out) == (2, "")
    assert err.startswith("error: only reading is allowed here")
    assert (with_run / "runs" / "toy" / "ledger.db").read_bytes() == before
    assert not (with_run / "other.db").exists()


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("select * from trajectorys", "there is no table `trajectorys`", "did you mean `trajectories`?"),
        ("select s.sourse from seeds s", "there is no column `sourse`", "did you mean `source`?"),
        ("selekt", "that is no query: near", "one statement, in quotes"),
        ("select 1; select 2", "that is no query: You can only execute one statement", "one statement, in quotes"),
    ],
)
def test_bad_queries(with_run: Path, typed: Callable[..., Typed], query: str, message: str, hint: str) -> None:
    code, out, err = typed("sql", "toy", query)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert f"\n\nhint: {hint}" in err


def test_a_run_that_is_held_can_be_asked(with_run: Path, answered: Callable[..., Any]) -> None:
    with Ledger.open(with_run / "runs" / "toy") as ledger:
        ledger.append_alarm(level="note", code="x", message="here").result()
        assert answered("sql", "toy", "select message from alarms")["rows"] == [["here"]]
        ledger.end_launch("done")


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell")
def test_the_shell_opens_it_too(with_run: Path, toy_run: Path) -> None:
    ask = ["sqlite3", "-readonly", str(with_run / "runs" / "toy" / "ledger.db"), "select count(*) from steps"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout == "2\n"
