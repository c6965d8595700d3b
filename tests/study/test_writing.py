"""Which of a writer's bugs become tasks of an endpoint."""

from __future__ import annotations

from selfplay.games.code import edits
from selfplay.games.code.mutate import mutations
from selfplay.study.writing import chosen, unlike
from selfplay.types import Seed, Task, digest

SOURCES = {
    "add": "def add(a, b):\n    return a + b\n",
    "last": "def last(items, n):\n    return items[-n:]\n",
}


def seed(name: str) -> Seed:
    """A function."""
    return Seed(id=digest("seed", name), game="code", source=name, payload={"source": SOURCES[name]}, split="train")


def task(name: str, buggy: str) -> Task:
    """The function with another text."""
    payload = {"source": SOURCES[name], "buggy": buggy}
    key = f"{name}:{buggy}"
    return Task(
        id=digest("task", key),
        game="code",
        seed_id=seed(name).id,
        key=key,
        payload=payload,
        split="train",
        step=0,
        parent_id=None,
    )


def test_each_seed_gives_its_share_in_turn() -> None:
    own = [task("add", f"def add(a, b):\n    return a + {n}\n") for n in ("a + b", "len(b)", "b + b")]
    other = [task("last", "def last(items, n):\n    return items[:n][::-1]\n")]
    seeds = [seed("last"), seed("add")]
    found = chosen([*own, *other], seeds, wanted=9, each=2)
    assert found.tasks[0] == other[0], "seeds in the order given"
    assert len(found.tasks) == 3
    assert {one.seed_id for one in found.tasks} == {one.id for one in found.seeds}
    assert found == chosen([*other, *own[::-1]], seeds, wanted=9, each=2), "whatever their order"
    assert len(chosen([*own, *other], seeds, wanted=2, each=2).tasks) == 2
    assert chosen([], seeds, wanted=9, each=2).tasks == ()


def test_bugs_that_a_warm_up_could_have_had_are_told_apart() -> None:
    known = [task("add", edits.apply(SOURCES["add"], one.edit)) for one in mutations(SOURCES["add"])]
    assert known
    assert not any(map(unlike, known))
    assert unlike(task("add", "def add(a, b):\n    return a + len(b)\n"))
