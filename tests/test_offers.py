"""New tasks go out once, in the order in which they were committed, with what was asked of their first maker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from selfplay.offers import NewTasks
from selfplay.stages import Played
from selfplay.types import Stop, Task, Trajectory, Verdict


def task(name: str) -> Task:
    return Task(id=name, game="echo", seed_id="s", key=name, payload={}, split="train", step=0)


def played(subject: str, *, stage: Any = "propose", makes: Task | None = None, index: int = 0) -> Played:
    trajectory = Trajectory(
        id=f"{subject}{index}",
        step=0,
        stage=stage,
        role="r",
        subject_id=subject,
        index=index,
        turns=(),
        stop=Stop.DONE,
        policy_version=(0, 0),
    )
    verdict = Verdict(
        trajectory_id=trajectory.id, stage="mint", valid=True, passed=None, reward=None, reason="valid", why="w"
    )
    return Played(trajectory=trajectory, verdict=verdict, task=makes)


def out(feed: Any) -> Sequence[str]:
    async def main() -> list[str]:
        return [task.id async for task in feed]

    return asyncio.run(asyncio.wait_for(main(), timeout=60))


def test_each_task_goes_out_once_and_known_ones_at_once() -> None:
    new = NewTasks([task("old")], {"s1": {"level": 1}, "s2": {"level": 2}}, attempted=(), helped=())
    new.take(played("s1", makes=task("a")))
    new.take(played("s2", makes=task("a")))
    new.take(played("s2", makes=None, index=1))
    new.take(played("old", stage="attempt", makes=task("child")))
    new.close()
    assert out(new.all) == ["old", "a", "child"]
    assert out(new.proposed) == ["a"]
    assert new.terms["a"] == {"level": 1}


def test_attempts_come_back_in_submission_order() -> None:
    new = NewTasks([task("old")], {}, attempted=(), helped=())
    for name in ("b", "a"):
        new.take(played("s", makes=task(name)))
    attempts = [played(name, stage="attempt", index=i) for name in ("old", "a", "b") for i in (0, 1)]
    assert [one.trajectory.id for one in new.in_order(attempts)] == ["b0", "b1", "a0", "a1", "old0", "old1"]


def test_what_an_earlier_round_attempted_does_not_go_out_again() -> None:
    new = NewTasks([task("old")], {}, attempted=[played("a", stage="attempt"), played("old")], helped=[played("a")])
    new.take(played("s", makes=task("a")))
    new.close()
    assert out(new.all) == []
    assert out(new.proposed) == []
