from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from selfplay.ledger import Ledger, Reader, picking


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any]) -> Reader:
    folder = tmp_path_factory.mktemp("picked") / "runs" / "toy"
    options = "curriculum.options={replay = 0.9, give_up = 0, only_better = false}"
    play(folder, "curriculum.choose=frontier", options, "play.proposals=16", steps=3)
    return Ledger.read(folder)


STEPS = (0, 1, 2)


def test_the_plays_of_the_newest_steps_by_advantage(reader: Reader) -> None:
    groups = [group for step in STEPS for group in reader.groups(step) if group.informative]
    every = sorted((advantage for group in groups for advantage in group.advantages), reverse=True)
    best = reader.ask(lambda ask: picking.by_advantage(ask, STEPS, best=True, limit=5))
    worst = reader.ask(lambda ask: picking.by_advantage(ask, STEPS, best=False, limit=5))
    assert [one.advantage for one in best] == every[:5]
    assert [one.advantage for one in worst] == every[::-1][:5]
    for one in best:
        stage = "mint" if one.stage == "propose" else "judge"
        verdict = next(v for v in reader.verdicts_of(one.id) if v.stage == stage)
        assert (one.reason, one.why) == (verdict.reason, verdict.why)


def test_every_round_of_a_task(reader: Reader) -> None:
    found = reader.ask(lambda ask: picking.records(ask, STEPS))
    assert found
    for one in found:
        played = [t for t in reader.trajectories_of(one.task_id) if t.stage == "attempt" and t.fault is None]
        verdicts = [(t.step, v) for t in played for v in reader.verdicts_of(t.id) if v.stage == "judge"]
        for step, decided, solved in one.rounds:
            passed = [v.passed for at, v in verdicts if at == step and v.passed is not None]
            assert (decided, solved) == (len(passed), sum(passed))
    assert any(len(one.rounds) > 1 for one in found)
    earlier = reader.ask(lambda ask: picking.records(ask, (0,)))
    assert all(step == 0 for one in earlier for step, *_ in one.rounds)


def test_refusals(reader: Reader) -> None:
    reasons = reader.ask(lambda ask: picking.refusals(ask, STEPS))
    refused = [v for step in STEPS for v in reader.verdicts(step, "propose", "mint").values() if not v.valid]
    assert sum(reasons.values()) == len(refused)
    reason = next(iter(reasons))
    rows = reader.ask(lambda ask: picking.refused(ask, reason, STEPS, limit=1000))
    assert {row.id for row in rows} == {v.trajectory_id for v in refused if v.reason == reason}
    steps = reader.ask(lambda ask: picking.steps_that_refused(ask, reason, limit=9))
    assert set(steps) == {row.step for row in rows}
    assert reader.ask(lambda ask: picking.steps_that_refused(ask, reason[:-1], limit=9)) == ()


def test_what_an_update_learnt_from(reader: Reader) -> None:
    update = reader.update(1)
    assert update is not None
    assert reader.ask(lambda ask: picking.learnt_from(ask, 1)) == frozenset(update.trajectory_ids)
    assert reader.ask(lambda ask: picking.learnt_from(ask, 99)) is None


def test_no_question_reads_a_table_from_end_to_end(reader: Reader) -> None:
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def spy(sql: str, *given: Any) -> list[sqlite3.Row]:
        asked.append((sql, given))
        return reader.ask(lambda ask: ask(sql, *given))

    picking.learnt_from(spy, 1)
    picking.by_advantage(spy, STEPS, best=True, limit=5)
    picking.records(spy, STEPS)
    picking.refused(spy, "truncated", STEPS, limit=5)
    picking.refusals(spy, STEPS)
    for sql, given in asked:
        plan = reader.ask(lambda ask, sql=sql, given=given: ask(f"EXPLAIN QUERY PLAN {sql}", *given))  # type: ignore[misc]
        steps = [row["detail"] for row in plan]
        tables = ("trajectories", "verdicts", "groups", "group_members", "tasks", " t", " v", " g", " m", " k")
        assert not [one for one in steps if one.startswith("SCAN") and one.split()[1] in map(str.strip, tables)], steps
