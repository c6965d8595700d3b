"""What a run will take is told from runs that are alike, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIZES = ("-s", "play.proposals=4", "-s", "play.attempts=4", "-s", "curriculum.seeds=2", "-s", "play.min_viable=2")


@pytest.fixture
def planned(spawned: Callable[..., tuple[int, str, str]]) -> Callable[..., Any]:
    """`planned("--steps", "9")`: the data of a plan of the demo."""

    def ask(*words: str) -> Any:
        code, out, err = spawned("demo", "--plan", "--json", *words)
        assert code == 0, err
        return json.loads(out)["data"]

    return ask


def costs(answer: Any) -> dict[str, Any]:
    return {row["name"]: row for row in answer["rows"] if row["section"] == "cost"}


def test_a_run_that_is_alike_tells_time_and_disk(with_run: Path, planned: Callable[..., Any]) -> None:
    found = costs(planned(*SIZES, "--steps", "50", "--name", "other"))
    assert found["time"]["value"].startswith("about ")
    assert found["time"]["note"].startswith("50 steps of ")
    assert "as run toy took" in found["time"]["note"]
    assert set(found) == {"time", "disk"}
    found = costs(planned(*SIZES, "--steps", "9", "--name", "toy", "-s", "run.save_every=2", "-s", "learner.lr=1e-3"))
    assert found["time"]["note"].startswith("7 steps of ")


def test_another_size_tells_nothing(with_run: Path, planned: Callable[..., Any]) -> None:
    assert costs(planned(*SIZES, "-s", "play.attempts=5"))["time"]["value"].startswith("not known: ")
