"""Rows of the reference: what each key is, has by default and takes; the whole table: `tests/test_config.py`."""

from __future__ import annotations

from selfplay.config import Config, load
from selfplay.config.reference import markdown, rows
from selfplay.project import Project


def test_a_row_tells_a_value_from_its_default(project: Project) -> None:
    config = load("demo", project=project, sets=["learner.lr=0.25"], environ={})
    by_key = {row.key: row for row in rows(config)}
    row = by_key["learner.lr"]
    assert (row.value, row.default, row.affects_results) == (0.25, Config().learner.lr, True)
    assert row.origin != by_key["learner.weight_decay"].origin
    assert not by_key["run.steps"].affects_results
    assert [row.key for row in rows(Config())] == list(by_key)


def test_the_table_can_be_read_by_cells() -> None:
    head, rule, *lines = markdown().splitlines()
    assert (head, rule) == ("| key | default | takes | meaning |", "|---|---|---|---|")
    cells = {line.split("|")[1].strip(): line.split("|") for line in lines}
    assert all(len(row) == 6 for row in cells.values()), "no pipe inside a cell"
    assert cells["`run.steps` *"][2] == " `10` "
    assert cells["`play.temperature`"][2].strip() == "", "unset by default"
    assert all(row[3].strip() and row[4].strip() for row in cells.values())
