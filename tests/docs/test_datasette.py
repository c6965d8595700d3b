"""The questions that docs/datasette.json has ready for Datasette: each is answered by a ledger of today's schema."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from selfplay.ledger import Ledger, Tally
from selfplay.ledger.files import connect_read_only

FILE = Path(__file__).parents[2] / "docs" / "datasette.json"
ROLES = ("propose/echo_proposer", "attempt/echo_solver")
QUERIES = json.loads(FILE.read_text(encoding="utf-8"))["databases"]["ledger"]["queries"]


@pytest.mark.parametrize("name", QUERIES)
def test_a_ready_question_is_answered(six_steps: Path, name: str) -> None:
    with contextlib.closing(connect_read_only(six_steps)) as connection:
        rows = connection.execute(QUERIES[name]["sql"]).fetchall()
    assert rows or name in ("broken", "alarms")
    assert QUERIES[name]["title"]


def test_steps_are_counted_as_the_ledger_counts_them(six_steps: Path) -> None:
    with contextlib.closing(connect_read_only(six_steps)) as connection:
        rows = connection.execute(QUERIES["steps"]["sql"]).fetchall()
    with Ledger.read(six_steps) as reader:
        counted = {row.step: row.tallies for row in reader.step_rows()}
    assert [row[0] for row in rows] == sorted(counted, reverse=True)
    for step, *figures in rows:
        proposer, solver = (counted[step].get(role, Tally()) for role in ROLES)
        assert figures == [proposer.played, proposer.valid, solver.played, solver.passed]
