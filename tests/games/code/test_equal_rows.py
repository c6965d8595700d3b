"""Twenty verifications of one candidate, each by a game that remembers nothing, give one row, but for times."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.types import Verdict
from tests.games.code.conftest import Table

pytestmark = pytest.mark.bubblewrap

TREE = {
    "m.py": "def first(items, default):\n    for item in items:\n        return item\n    return default\n",
    "test_m.py": """
        from m import first


        def test_first():
            assert first([3, 4], None) == 3
            assert first({"a": 1}, None) == "a"


        def test_default():
            assert first([], object) is object
    """,
}
BUG = "3|        return items"
REPAIR = "3|        return list(items)[0]"


def row(verdict: Verdict) -> str:
    """What a ledger holds of a verdict, but for its time."""
    return json.dumps(dataclasses.asdict(dataclasses.replace(verdict, seconds=0.0)), sort_keys=True)


def test_twenty_verifications_of_one_candidate(table_of: Callable[..., Table], tmp_path: Path) -> None:
    first = table_of(TREE, held_out=0.0).open()
    minted = first.mint("first", BUG)
    assert minted.task is not None, minted.verdict
    rows = set()
    for _ in range(20):
        table = table_of(TREE, held_out=0.0)
        verdict = table.judge(REPAIR, minted.task)
        rows.add(row(verdict))
    assert len(rows) == 1, rows
    assert verdict.passed, verdict
    assert verdict.evidence["differential"]["total"] > 20
