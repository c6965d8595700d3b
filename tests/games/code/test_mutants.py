"""What tests say about mutations: measured once, kept by what was run, and nothing where a bug cannot be loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.games.code import mutants
from selfplay.games.code.mutate import Kind, Mutation, mutations
from selfplay.games.code.verify import Budget

pytestmark = pytest.mark.bubblewrap


def test_it_is_measured_once_and_kept(table, tmp_path: Path) -> None:
    opened = table.do(table.game.opened())
    function = next(one for one in opened.survey.functions if one.qualname == "count")
    mutation = next(one for one in mutations(function.source) if one.kind is Kind.RETURN)
    unchanged = Mutation(kind=Kind.RETURN, line=mutation.line, old=mutation.old, new=mutation.old)
    pairs = [(function, mutation), (function, mutation)]

    def measured() -> mutants.Table:
        budget = opened.budget(function.tests)
        job = mutants.measure(pairs, verifier=opened.verifier, budget=lambda one: budget, cache=tmp_path)
        return table.do(job)

    found = measured()
    assert list(found) == [(function.name, mutation.edit.text)]
    [failing] = found.values()
    assert set(failing) == {"tests/test_core.py::test_count"}
    [kept] = (tmp_path / "mutants").iterdir()
    assert json.loads(kept.read_text()) == dict(failing)
    kept.write_text(json.dumps({"tests/test_core.py::test_count": "what was kept is taken"}))
    assert list(measured().values()) == [{"tests/test_core.py::test_count": "what was kept is taken"}]
    kept.write_text("half a file")
    assert measured() == found
    pairs[:] = [(function, unchanged)]
    assert list(measured().values()) == [{}], "nothing fails where nothing changes"


def test_a_run_that_the_wall_clock_ended_is_not_kept(table, tmp_path: Path) -> None:
    opened = table.do(table.game.opened())
    function = next(one for one in opened.survey.functions if one.qualname == "count")
    mutation = next(one for one in mutations(function.source) if one.kind is Kind.RETURN)
    waits = replace(mutation, new="    __import__('time').sleep(600)")
    budget = Budget(cpu_seconds=60, seconds=1)
    job = mutants.measure([(function, waits)], verifier=opened.verifier, budget=lambda one: budget, cache=tmp_path)
    assert list(table.do(job).values()) == [{}]
    assert not (tmp_path / "mutants").exists()
