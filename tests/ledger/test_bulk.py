"""The number of statements does not grow with the number of records."""

from __future__ import annotations

import pytest


@pytest.fixture
def statements(ledger):
    seen: list[str] = []
    ledger._connection.set_trace_callback(lambda sql: seen.append(sql) if sql.startswith("SELECT") else None)
    yield seen
    ledger._connection.set_trace_callback(None)


def test_trajectories_with_turns_calls_and_blobs(ledger, make, statements):
    plays = tuple(make.play(index=index) for index in range(40))
    ledger.append(*plays)
    assert ledger.trajectories(0, "propose") == plays
    assert len(statements) == 3


def test_groups_and_updates(ledger, make, statements):
    for step in range(5):
        make.step(ledger, step)
    statements.clear()
    assert len(ledger.updates("play")) == 5
    assert len(ledger.groups(3)) == 1
    assert len(statements) == 3


def test_more_ids_than_one_statement_takes(ledger, make):
    plays = [make.play(index=index, turns=()) for index in range(1200)]
    ledger.append(*plays)
    found = ledger.trajectories_by_id([*(play.id for play in plays), "none"])
    assert list(found.values()) == plays
