from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from selfplay.sandbox import Sandbox, SandboxInfraError, SandboxSpec
from selfplay.sandbox.pool import SPECS, Pool


class Dummy:
    """As much of a sandbox as a pool touches."""

    def __init__(self, spec: SandboxSpec, number: int) -> None:
        self.spec, self.number = spec, number
        self.well, self.closed = True, 0

    async def alive(self) -> bool:
        return self.well

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class Backend:
    """Counts what it makes, and fails where it is told to."""

    def __init__(self) -> None:
        self.made: list[Dummy] = []
        self.fails = False
        self.gate: asyncio.Event | None = None
        self.cancelled = 0

    async def create(self, spec: SandboxSpec) -> Sandbox:
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise SandboxInfraError("no engine")
        self.made.append(Dummy(spec, len(self.made)))
        return cast(Sandbox, self.made[-1])


def run(main: Callable[[Backend], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main(Backend()))


async def until(done: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come")


async def settle(pool: Pool, idle: int) -> None:
    """Wait for the refill."""
    await until(lambda: pool.counts.idle == idle)


SPEC = SandboxSpec(name="python", ttl_seconds=100.0)


def test_first_is_a_miss_and_the_next_are_hits_and_no_two_are_the_same() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=2)
        got = [await pool.acquire(SPEC)]
        for _ in range(5):
            await settle(pool, 2)
            got.append(await pool.acquire(SPEC))
        await settle(pool, 2)
        assert len({id(sandbox) for sandbox in got}) == 6
        counts = pool.counts
        assert (counts.hits, counts.misses, counts.idle, counts.created, counts.failures) == (5, 1, 2, 8, 0)
        assert counts.create_seconds > 0 < counts.hit_seconds
        await pool.aclose()
        assert sorted(one.closed for one in backend.made) == [0] * 6 + [1] * 2, "idle ones only"

    run(main)


def test_many_at_once_never_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=3)
        got = await asyncio.gather(*(pool.acquire(SPEC) for _ in range(20)))
        await settle(pool, 3)
        got += await asyncio.gather(*(pool.acquire(SPEC) for _ in range(20)))
        assert len({id(sandbox) for sandbox in got}) == 40
        assert pool.counts.hits >= 3
        await pool.aclose()

    run(main)


def test_dead_and_old_ones_are_closed_and_the_next_is_taken() -> None:
    async def main(backend: Backend) -> None:
        now = 0.0
        pool = Pool(backend.create, size=2, clock=lambda: now)
        await pool.acquire(SPEC)
        await settle(pool, 2)
        backend.made[1].well = False
        assert cast(Dummy, await pool.acquire(SPEC)).number == 2
        await settle(pool, 2)
        now = 51.0
        assert cast(Dummy, await pool.acquire(SPEC)).number == 5, "all idle ones were past half their time"
        await settle(pool, 2)
        # A clock that was set back says nothing of age: not trusted, so not handed out.
        now = -86400.0
        assert cast(Dummy, await pool.acquire(SPEC)).number == 8
        await pool.aclose()
        assert pool.counts.discarded == 5
        assert all(one.closed == 1 for one in backend.made if one.number not in (0, 2, 5, 8))

    run(main)


def test_failed_refill_is_the_next_cold_starts_to_tell() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=1)
        await pool.acquire(SPEC)
        await settle(pool, 1)
        backend.fails = True
        await pool.acquire(SPEC)
        await until(lambda: pool.counts.failures == 1)
        with pytest.raises(SandboxInfraError, match="no engine"):
            await pool.acquire(SPEC)
        backend.fails = False
        await pool.acquire(SPEC)
        await settle(pool, 1)
        await pool.aclose()

    run(main)


def test_specs_are_equal_by_all_but_labels_and_by_what_the_archive_holds(tmp_path: Path) -> None:
    async def main(backend: Backend) -> None:
        archive = tmp_path / "tree.tar"
        archive.write_bytes(b"one")
        spec = SandboxSpec(name="python", archive=str(archive), env={"A": "1"}, labels={"role": "solver"})
        pool = Pool(backend.create, size=1)
        await pool.acquire(spec)
        await settle(pool, 1)
        other = SandboxSpec(name="python", archive=str(archive), env={"A": "1"}, labels={"role": "verifier"})
        assert cast(Dummy, await pool.acquire(other)).spec.labels == {"role": "solver"}
        await settle(pool, 1)
        archive.write_bytes(b"another")
        assert cast(Dummy, await pool.acquire(other)).spec.labels == {"role": "verifier"}
        await pool.aclose()

    run(main)


def test_only_the_specs_used_last_keep_idle_sandboxes() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=2)
        for pids in range(1, SPECS + 4):
            await pool.acquire(SandboxSpec(name="python", pids=pids))
            await settle(pool, 2 * min(pids, SPECS))
        assert pool.counts.idle == 2 * SPECS
        await asyncio.sleep(0.01)
        closed = {one.spec.pids for one in backend.made if one.closed}
        assert closed == {1, 2, 3}
        await pool.aclose()

    run(main)


def test_closing_ends_refills_and_is_idempotent() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=2)
        await pool.acquire(SPEC)
        await settle(pool, 2)
        closing = asyncio.create_task(pool.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await pool.aclose()
        assert all(one.closed == 1 for one in backend.made[1:])
        with pytest.raises(SandboxInfraError, match="pool is closed"):
            await pool.acquire(SPEC)

    run(main)


def test_cancelled_refill_is_told_to_its_create() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=1)
        await pool.acquire(SPEC)
        await settle(pool, 1)
        backend.gate = asyncio.Event()
        await pool.acquire(SPEC)
        await asyncio.sleep(0.01)
        await pool.aclose()
        assert backend.cancelled == 1

    run(main)


def test_without_a_size_every_start_is_cold() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=0)
        for number in range(3):
            assert cast(Dummy, await pool.acquire(SPEC)).number == number
        assert (pool.counts.misses, pool.counts.idle) == (3, 0)
        await pool.aclose()

    run(main)


def test_a_hit_costs_less_than_five_milliseconds() -> None:
    async def main(backend: Backend) -> None:
        pool = Pool(backend.create, size=4)
        await pool.acquire(SPEC)
        await settle(pool, 4)
        seconds = []
        for _ in itertools.repeat(None, 50):
            start = time.perf_counter()
            await pool.acquire(SPEC)
            seconds.append(time.perf_counter() - start)
            await settle(pool, 4)
        assert sorted(seconds)[25] < 0.005
        await pool.aclose()

    run(main)
