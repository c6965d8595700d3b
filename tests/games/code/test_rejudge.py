"""A task's bug as files, with its weakening and, from older runs, without; the proof itself is `test_reverify`'s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.cache import cache_folder
from selfplay.games.code.rejudge import made_of
from selfplay.games.code.source import Repository, fetch
from selfplay.ledger import Ledger
from selfplay.types import Task

pytestmark = pytest.mark.bubblewrap


@pytest.fixture
def known(code_run: Path) -> tuple[Task, Repository]:
    """A task of the scripted run, and the clean tree."""
    with Ledger.read(code_run) as reader:
        return reader.tasks(0)[0], fetch(reader.run_row().config["game.source"], cache=cache_folder())


def test_bug_and_weakening(known: tuple[Task, Repository]) -> None:
    task, repository = known
    made = made_of(task, repository=repository)
    assert list(made.code) == ["pkg/core.py"]
    assert list(made.tests) == ["tests/test_core.py"]
    buggy = made.code["pkg/core.py"]
    assert buggy is not None
    assert task.payload["buggy"] in buggy.decode()


def test_a_task_of_an_older_run(known: tuple[Task, Repository]) -> None:
    task, repository = known
    older = replace(task, payload={name: part for name, part in task.payload.items() if name != "artifact"})
    made = made_of(older, repository=repository)
    assert made.code == made_of(task, repository=repository).code
    assert made.tests == {}


def test_a_task_of_another_tree(known: tuple[Task, Repository]) -> None:
    task, repository = known
    other = replace(task, payload={**task.payload, "artifact": {**task.payload["artifact"], "bug": "--- a/no\n"}})
    with pytest.raises(ValueError, match=r"^task [0-9a-f]{12}: the bug's diff: "):
        made_of(other, repository=repository)
    older = replace(task, payload={**task.payload, "artifact": None, "line": 99})
    with pytest.raises(ValueError, match="is not what the tree holds"):
        made_of(older, repository=repository)
