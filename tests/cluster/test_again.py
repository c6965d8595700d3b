"""How often a launch begins anew, and that it ends with its cluster; Ray is not needed for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from selfplay.cluster import ENGINE_RESOURCE, RESOURCE, Nodes, Wanted, again, joining
from selfplay.cluster.again import launched, until_lost
from selfplay.errors import NotReady
from selfplay.learner.ranks import LearnerLost
from tests.cluster.ray_fake import behead, installed

ONE_EACH = {"CPU": 1.0, ENGINE_RESOURCE: 1.0}


def wanted(restarts: int) -> Wanted:
    return Wanted(nodes=Nodes(sandboxes=2, restarts=restarts), ranks=3, threads=4)


class Launch:
    """Ends as it is told, one time after the other."""

    def __init__(self, *ends: Exception | int) -> None:
        self.ends = list(ends)

    async def __call__(self) -> int:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def test_a_launch_begins_anew_as_often_as_it_may() -> None:
    said: list[str] = []
    lost = LearnerLost("rank 1 of the learner is lost")
    assert launched(Launch(lost, lost, 7), wanted(2), tell=said.append) == 7
    assert [text.partition(";")[0] for text in said] == ["rank 1 of the learner is lost"] * 2
    assert [text.rpartition("at most ")[2] for text in said] == ["2 more times", "1 more times"]
    with pytest.raises(LearnerLost):
        launched(Launch(lost, lost, 7), wanted(1), tell=said.append)


def test_what_else_ends_a_launch_ends_it() -> None:
    said: list[str] = []
    with pytest.raises(NotReady):
        launched(Launch(NotReady("no place"), 7), wanted(3), tell=said.append)
    with pytest.raises(LearnerLost):
        launched(Launch(LearnerLost("rank 1"), 7), None, tell=said.append)
    assert said == []


def test_rank_0_asks_the_cluster_for_nothing() -> None:
    assert wanted(0).resources == {"CPU": 8, RESOURCE: 2}
    with pytest.raises(ValueError, match="`place_seconds` is 0"):
        Nodes(place_seconds=0.0)


def test_a_launch_that_asks_nobody_ends_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_fake = installed(monkeypatch, places=1)
    said: list[str] = []

    async def play() -> None:
        await asyncio.to_thread(joining.join, ONE_EACH, part=ENGINE_RESOURCE)
        try:
            behead(ray_fake, monkeypatch)
            await asyncio.sleep(600.0)
        finally:
            monkeypatch.setattr(ray_fake, "cluster_resources", lambda: pytest.fail("it has no head"))
            with pytest.raises(NotReady, match="can no longer be reached"):
                joining.join(ONE_EACH, part=ENGINE_RESOURCE)
            joining.leave()

    with pytest.raises(NotReady, match="can no longer be reached"):
        launched(play, wanted(3), tell=said.append)
    assert (said, joining._joined, joining._listening) == ([], 0, [])


def test_a_launch_that_hangs_is_ended_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_fake = installed(monkeypatch, places=1)
    monkeypatch.setattr(again, "LEAVING_SECONDS", 0.1)
    hangs = threading.Event()
    said: list[str] = []

    def end(error: NotReady) -> None:
        said.append(error.message)
        hangs.set()

    async def play() -> None:
        joining.join(ONE_EACH, part=ENGINE_RESOURCE)
        behead(ray_fake, monkeypatch)
        assert hangs.wait(60.0)
        joining.leave()
        await asyncio.sleep(0)

    with pytest.raises(NotReady) as error:
        until_lost(play, end=end)
    assert said == [error.value.message]
