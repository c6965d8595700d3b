"""The simulator runs, is the same for the same seed, and its memory answers as a ledger would."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[1] / "bench" / "curriculum.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_curriculum", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["uniform", "frontier", "probation", "plr", "bandit"])
def test_every_preset_is_simulated(bench: ModuleType, name: str) -> None:
    first, again = (bench.simulate(name, "variance", "task", 3, steps=6) for _ in range(2))
    assert first == again
    assert not first.reached
    assert first.steps == 6
    assert first.attempts > 0


def test_the_laws_differ_in_where_they_peak(bench: ModuleType) -> None:
    peaks = {name: max(range(101), key=lambda p: law(p / 100)) for name, law in bench.LAWS.items()}
    assert peaks["variance"] == 50
    assert peaks["success"] == 100
    assert 0 < peaks["hard"] < 40


def test_memory_knows_what_was_recorded(bench: ModuleType) -> None:
    memory = bench.Memory()
    memory.record(asked=[("s000", 2, 1)], plays=[("a", "s000", bench.Played(step=0, decided=8, solved=3))])
    memory.record(asked=[], plays=[("a", "s000", bench.Played(step=1, decided=8, solved=5))])
    (task,) = memory.known_tasks(since=1, before=2)
    assert [play.solved for play in task.plays] == [3, 5]
    assert memory.proposals(since=0, before=1)["s000"].reasons == {"invalid": 1}
    assert memory.movement(since=0, before=5) == {0: 1.0, 1: 1.0}
    assert memory.failed_attempts("a", before=2) == ["a/1", "a/0"]
