"""How jobs wait for one another: feeds, results in order, several stages at the same time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from selfplay.errors import RunFailed
from selfplay.events import Interrupt
from selfplay.flow import Feed, Interrupted, in_order, together


def kept(result: int | None) -> list[int]:
    return [] if result is None else [result]


def test_a_job_begins_when_it_comes_and_results_keep_the_order() -> None:
    began: list[int] = []

    async def job(number: int, gate: asyncio.Event) -> int:
        began.append(number)
        await gate.wait()
        return number

    async def main() -> list[int]:
        feed: Feed[Any] = Feed()
        first, second = asyncio.Event(), asyncio.Event()
        row = asyncio.ensure_future(in_order(feed, kept, Interrupt()))
        feed.put(partial(job, 1, first))
        while began != [1]:  # noqa: ASYNC110 (a job says that it began, nothing else)
            await asyncio.sleep(0)
        feed.put(partial(job, 2, second))
        while began != [1, 2]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        feed.close()
        second.set()
        await asyncio.sleep(0.01)
        assert not row.done()
        first.set()
        return await row

    assert asyncio.run(asyncio.wait_for(main(), timeout=60)) == [1, 2]


def test_what_feeds_the_jobs_may_fail() -> None:
    async def feed() -> Any:
        yield partial(asyncio.sleep, 0, 1)
        raise RunFailed("no more")

    with pytest.raises(RunFailed, match="no more"):
        asyncio.run(asyncio.wait_for(in_order(feed(), kept, Interrupt()), timeout=60))


def test_a_failure_cancels_the_others() -> None:
    ended: list[str] = []

    async def waits() -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")
        return 0

    async def fails() -> int:
        raise RunFailed("broken")

    async def main() -> None:
        await together(waits(), fails())

    with pytest.raises(RunFailed, match="broken"):
        asyncio.run(asyncio.wait_for(main(), timeout=60))
    assert ended == ["cancelled"]


def test_who_is_interrupted_lets_the_others_end() -> None:
    ended: list[str] = []

    async def ends() -> int:
        await asyncio.sleep(0.05)
        ended.append("whole")
        return 0

    async def stops() -> int:
        raise Interrupted

    async def main() -> None:
        await together(ends(), stops())

    with pytest.raises(Interrupted):
        asyncio.run(asyncio.wait_for(main(), timeout=60))
    assert ended == ["whole"]


def test_nothing_is_committed_after_a_gap() -> None:
    async def stops() -> int:
        raise Interrupted

    async def feed() -> Any:
        for job in (partial(asyncio.sleep, 0, 1), stops, partial(asyncio.sleep, 0, 3)):
            yield job

    committed: list[int | None] = []

    def commit(result: int | None) -> list[int]:
        committed.append(result)
        return kept(result)

    with pytest.raises(Interrupted):
        asyncio.run(asyncio.wait_for(in_order(feed(), commit, Interrupt()), timeout=60))
    assert committed == [1]
