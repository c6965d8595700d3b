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
    sys.path.insert(0, str(FILE.parent))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FILE.parent))
    return module


@pytest.mark.parametrize("name", ["uniform", "frontier", "probation", "plr", "bandit", "oracle", "oracle-where"])
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


def test_an_oracle_takes_what_teaches_most_and_nothing_that_nobody_can_solve(bench: ModuleType) -> None:
    found = bench.simulate("oracle", "variance", "sharp place", 3, steps=30)
    assert found.unsolvable < 0.1
    world = bench.World(3, "variance", "sharp place", bench.RATE)
    memory = bench.Memory()
    (best,) = bench.oracle(world, memory, world.seeds, replays=True, law=bench.LAWS["variance"], n=1, step=0)
    slopes = world.slopes()
    worth = [world.promised(s, world.law) * slopes[s // bench.SEEDS_A_MODULE] for s in range(len(world.base))]
    assert best.score == max(worth)
    assert best.subject_id == world.seeds[worth.index(max(worth))].id


def test_most_groups_of_a_sharp_world_are_all_or_nothing(bench: ModuleType) -> None:
    world = bench.World(0, "variance", "sharp place", bench.RATE)
    plain = bench.World(0, "variance", "place", bench.RATE)
    middling = [sum(0.05 < p < 0.95 for p in one.exam_rates()) for one in (world, plain)]
    assert middling[0] < 0.75 * middling[1]


def test_memory_knows_what_was_recorded(bench: ModuleType) -> None:
    memory = bench.Memory()
    memory.record(asked=[("s000", 2, 1)], plays=[("a", "s000", bench.Played(step=0, decided=8, solved=3))])
    memory.record(asked=[], plays=[("a", "s000", bench.Played(step=1, decided=8, solved=5))])
    (task,) = memory.known_tasks(since=1, before=2)
    assert [play.solved for play in task.plays] == [3, 5]
    assert memory.proposals(since=0, before=1)["s000"].reasons == {"invalid": 1}
    assert memory.movement(since=0, before=5) == {0: 1.0, 1: 1.0}
    assert memory.failed_attempts("a", before=2) == ["a/1", "a/0"]
