"""Guarantee C's digest: equal for equal runs, different for any other."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace

import pytest

from selfplay.ledger import Ledger
from selfplay.types import Fault


@pytest.fixture
def pair(tmp_path, create):
    with create(tmp_path / "a") as a, create(tmp_path / "b", {"run": {"steps": 9}}) as b:
        yield a, b


def records(make) -> list[object]:
    plays = [make.play(index=index) for index in range(6)]
    return [make.seed(), make.seed("s1"), make.choice(), make.task(), *plays, *(make.verdict(play) for play in plays)]


def test_order_clocks_hosts_and_blob_ids_do_not_count(pair, make):
    a, b = pair
    a.append(*records(make)).result()
    shuffled = records(make)
    random.Random(1).shuffle(shuffled)
    for record in sorted(shuffled, key=lambda record: type(record).__name__ == "Verdict"):
        if hasattr(record, "seconds"):
            record = replace(record, seconds=record.seconds + 5.0)
        b.append(record)
        b.flush()
    b.append_fault(Fault(culprit="machine", where="disk", message="slow"))
    b.append_alarm(level="note", code="x", message="y")
    b.append_control(action="pause", arguments={})
    make.close(a, 0)
    make.close(
        b,
        0,
        update=make.update(0, seconds=9.0, metrics={"entropy": 1.5, "tokens_per_second": 7.0, "peak_memory_mb": 1.0}),
        stage_seconds={"sampling": 99.0},
        counts={"n": 1, "seconds": 3.0},
    )
    a.append_save(make.save())
    b.append_save(make.save(path="/elsewhere"))
    assert a.comparable() == b.comparable()
    b.end_launch("stopped")
    b.close()
    with Ledger.open(b.folder) as again:
        assert again.comparable() == a.comparable()


@pytest.mark.parametrize(
    ("change", "table"),
    [
        (lambda make: make.play(index=9), "trajectories"),
        (lambda make: make.choice(index=9), "choices"),
        (lambda make: make.seed("s9"), "seeds"),
        (lambda make: make.verdict(make.play(), "grade"), "verdicts"),
        (lambda make: make.task("other"), "tasks"),
    ],
)
def test_any_other_row_shows_in_its_table(pair, make, change, table):
    a, b = pair
    for ledger in pair:
        ledger.append(*records(make)).result()
    b.append(change(make)).result()
    first, second = a.comparable(), b.comparable()
    assert {name for name in first if first[name] != second[name]} - {"turns", "tool_calls"} == {table}


@pytest.mark.parametrize("part", ["product", "token_ids", "logprobs", "text", "result"])
def test_any_other_content_shows(pair, make, part):
    turn = make.turns()[1]
    changed = {
        "token_ids": replace(turn, token_ids=(8, 1)),
        "logprobs": replace(turn, logprobs=(-0.5, -0.125)),
        "text": replace(turn, text="aB"),
        "result": replace(turn, calls=(replace(turn.calls[0], result="b.py\n"),)),
    }
    for ledger, second in zip(pair, (turn, changed.get(part, turn)), strict=True):
        product = {"patch": "--- a"} if part == "product" and ledger is pair[1] else {}
        ledger.append(replace(make.play(), turns=(make.turns()[0], second), product=product))
    a, b = (ledger.comparable() for ledger in pair)
    assert {name for name in a if a[name] != b[name]} == {"trajectories"}


def test_schemas_that_change_nothing_of_what_is_compared_do_not_count(pair):
    a, b = pair
    a.close(), b.close()
    with sqlite3.connect(a.folder / "ledger.db") as connection:
        connection.execute("DROP TRIGGER runs_no_update")
        connection.execute("UPDATE runs SET schema_version = 5")
        connection.execute("CREATE TRIGGER runs_no_update BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'no'); END")
    with Ledger.read(a.folder) as old, Ledger.read(b.folder) as new:
        assert old.run_row().schema_version < new.run_row().schema_version
        assert old.comparable() == new.comparable()
