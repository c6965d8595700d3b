"""Tasks that nobody proposed: the first mutation that is a bug, for held-out seeds in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from selfplay.games import kept_back
from selfplay.games.code import given
from selfplay.games.code.bugs import Bug, Problem
from selfplay.games.code.mutate import mutations
from selfplay.games.code.opened import Opened
from selfplay.types import Seed, Split, Task


def task(name: str) -> Task:
    return Task(id=name, game="code", seed_id=name, key=name, payload={}, split="held_out", step=-1)


@pytest.mark.bubblewrap
def test_a_task_of_a_mutation_that_tests_notice(table) -> None:
    seen: list[Bug] = []

    async def make(bug: Bug) -> Task | Problem:
        seen.append(bug)
        # note: one that is no task, so that the next is tried.
        return task(bug.source) if len(seen) > 1 else Problem(reason="no", why="not this one")

    seed, opened = table.by_name["count"], table.do(table.game.opened())
    found = table.do(given.given(seed, opened, make=make))
    assert found is not None
    assert [bug.source for bug in seen][-1] == found.id
    assert len({bug.source for bug in seen}) == len(seen) == 2
    assert all(bug.failing for bug in seen)
    again: list[Bug] = []

    async def first(bug: Bug) -> Task:
        again.append(bug)
        return task(bug.source)

    table.do(given.given(seed, opened, make=first))
    assert again[0].source == seen[0].source, "the order is the seed's"


@pytest.mark.bubblewrap
def test_a_function_of_which_no_task_comes_is_left_alone(table) -> None:
    tried = 0

    async def never(bug: Bug) -> Problem:
        nonlocal tried
        tried += 1
        return Problem(reason="no", why="never")

    seed = table.by_name["count"]
    assert len(list(mutations(seed.payload["source"]))) > given.TRIED
    assert table.do(given.given(seed, table.do(table.game.opened()), make=never)) is None
    assert 0 < tried <= given.TRIED


def of(source: str) -> Seed:
    return Seed(id="s", game="code", source="", payload={"source": source, "qualname": "f"}, split="train")


def test_proposals_without_a_model_differ_within_a_step_and_between_steps() -> None:
    seed = of("def f(a, b):\n    if a > b:\n        return a + 1\n    return b - a\n")
    there = {mutation.edit.text for mutation in mutations(seed.payload["source"])}
    step = [given.handed_over(seed, step=3, index=index)[given.MUTATION] for index in range(len(there))]
    assert set(step) == there, "each is handed over once"
    assert given.handed_over(seed, step=3, index=len(there)) == {given.MUTATION: step[0]}, "then they begin again"
    assert len({given.handed_over(seed, step=at, index=0)[given.MUTATION] for at in range(20)}) > 1


def test_a_function_without_a_place_for_a_mutation_is_no_bug() -> None:
    seed = of("def f(a):\n    pass\n")
    assert given.handed_over(seed, step=0, index=0) == {given.MUTATION: ""}
    found = asyncio.run(given.mutated("", seed, cast(Opened, None)))
    assert isinstance(found, Problem)
    assert (found.reason, found.why) == (given.NONE, "f has no place for a mutation")


async def held_out(count: int, splits: Sequence[Split], *, without: Sequence[int] = ()) -> tuple[list[str], list[str]]:
    """Ids of seeds and tasks, and who was asked, where the seeds `without` have no task."""
    asked: list[str] = []

    async def make(seed: Seed) -> Task | None:
        asked.append(seed.id)
        return None if int(seed.id[1:]) in without else task(seed.id)

    every = [Seed(id=f"s{i}", game="code", source="", payload={}, split=split) for i, split in enumerate(splits)]
    seeds, tasks = await given.held_out(kept_back(every), count, make=make)
    assert len(asked) == len(set(asked))
    return [seed.id for seed in seeds], [one.id for one in tasks]


def test_held_out_seeds_make_up_for_each_other() -> None:
    splits: list[Split] = ["held_out", "train", "held_out", "held_out", "train", "held_out"]
    whole_seeds, whole = asyncio.run(held_out(4, splits))
    assert sorted(whole_seeds) == sorted(whole) == ["s0", "s2", "s3", "s5"]
    assert asyncio.run(held_out(2, splits)) == (whole_seeds[:2], whole[:2])
    without = int(whole[0][1:])
    assert asyncio.run(held_out(2, splits, without=[without])) == (whole_seeds[:2], whole[1:3])
    assert asyncio.run(held_out(9, splits)) == (whole_seeds, whole)
    assert asyncio.run(held_out(3, ["train"])) == ([], [])
