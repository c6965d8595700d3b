"""What becomes of engines that fail, with a stand-in for Ray; the same jobs on a real cluster: test_policies.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from selfplay.cluster import engines, joining
from selfplay.cluster.engine_node import EngineNode
from selfplay.errors import NotReady, RunFailed
from selfplay.learner import copies
from selfplay.policy import parcels
from selfplay.policy.parcels import Parcel
from tests.cluster import engines_bench as jobs
from tests.cluster.engines_bench import Bench, played, requests
from tests.cluster.ray_fake import FakeRay, behead, installed

USED_UP = NotReady("vLLM's engine was lost 4 times", hint="look")


@pytest.fixture(name="ray_fake")
def _ray_fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Two places, short waits, small pieces; what an actor sets of its process's variables is set back."""
    for name, usual in (("OMP_NUM_THREADS", "1"), ("OMP_WAIT_POLICY", "PASSIVE")):
        monkeypatch.setenv(name, os.environ.get(name, usual))
    monkeypatch.setattr(parcels, "PIECE", 10_000)
    monkeypatch.setattr(engines, "PAUSE_SECONDS", 0.2)
    fake = installed(monkeypatch, places=2)
    yield fake
    assert fake.living == [], "no actor is left"
    fake.head.close()


def test_replies_are_those_of_one_machine_whatever_becomes_of_an_engine(
    ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(bench: Bench) -> None:
        await jobs.loses_one(bench, lambda: ray_fake.kill(ray_fake.living[0]), monkeypatch, seconds=jobs.WAIT_SECONDS)

    async def falls_silent(bench: Bench) -> None:
        await jobs.loses_one(bench, ray_fake.living[0].silent.set, monkeypatch, seconds=5.0)

    bench = Bench(restarts=50)
    bench.use(jobs.samples_alike, jobs.stays, jobs.gives_up, dies, falls_silent, jobs.loses_the_head)
    assert "died (" in bench.said[0]
    owed = "open replies are asked of another, an engine is started in its place, and at most 49 after it"
    assert bench.said[0].endswith(owed), bench.said
    assert any("gave no answer to `told` in 5 s" in text for text in bench.said), bench.said
    with pytest.raises(RunFailed, match="policy is closed"):
        asyncio.run(bench.there.sample(requests(1)[0]))


def test_losses_are_bounded(ray_fake: FakeRay) -> None:
    bench = Bench(restarts=0, count=1)
    bench.use(lambda one: jobs.loses_the_last(one, lambda: ray_fake.kill(ray_fake.living[0])))
    assert [text.rpartition(", ")[2] for text in bench.said] == ["and no engine is started again any more"]


def test_an_engine_goes_on_alone_where_there_is_no_place_for_another(ray_fake: FakeRay) -> None:
    async def job(bench: Bench) -> None:
        await played(bench.there, requests(4))
        ray_fake.places = 1
        ray_fake.kill(ray_fake.living[1])
        await jobs.until(lambda: len(bench.there.engines) == 1)
        bench.learn()
        assert await played(bench.there, requests(4)) == await played(bench.here, requests(4))
        await jobs.until(
            lambda: "could not be started again: engine 2 gave no answer to `here` in 1 s" in bench.said[-1]
        )

    Bench(place_seconds=1.0).use(job)


def test_weights_that_arrive_changed_are_not_sampled_from(ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    take = EngineNode.take

    async def damaged(self: EngineNode, start: int, piece: Any, *, size: int) -> None:
        changed = piece.copy()
        changed[7] ^= 1
        await take(self, start, changed, size=size)

    async def job(bench: Bench) -> None:
        await bench.there.open()
        monkeypatch.setattr(EngineNode, "take", damaged)
        with pytest.raises(RunFailed, match=r"the sampler has other weights than the learner \(version 0\)"):
            await bench.there.sample(requests(1)[0])
        assert sum(engine.replies for engine in bench.there.engines) == 0

    Bench().use(job)


def test_engines_that_do_not_fit_are_said_before_anything_is_sampled(
    ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def other(self: EngineNode) -> tuple[str, str]:
        return "0.0", "one"

    def refused(sentence: str) -> None:
        async def job(bench: Bench) -> None:
            with pytest.raises(NotReady, match=sentence) as error:
                await bench.there.open()
            assert error.value.hint

        Bench().use(job)

    ray_fake.places = 1
    refused("the Ray cluster has 1 of `selfplay_engine`, and 2 are asked for")
    ray_fake.places = 2
    monkeypatch.setattr(EngineNode, "here", other)
    refused("engine 1: one has selfplay 0.0, and the driver")


@pytest.mark.parametrize("method", ["sample", "load"])
def test_an_engine_whose_sampler_is_used_up_is_lost_and_others_go_on(
    method: str, ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = getattr(EngineNode, method)
    used_up: list[EngineNode] = []

    async def fails(self: EngineNode, *words: Any, **named: Any) -> Any:
        if self in used_up:
            raise USED_UP
        return await usual(self, *words, **named)

    async def job(bench: Bench) -> None:
        monkeypatch.setattr(EngineNode, method, fails)
        await played(bench.there, requests(4))
        used_up.append(ray_fake.living[0].made)
        bench.learn()
        assert await played(bench.there, requests(4)) == await played(bench.here, requests(4))
        await jobs.until(lambda: "engine 1 is there again" in bench.said[-1])

    bench = Bench()
    bench.use(job)
    why = "has no sampler any more (vLLM's engine was lost 4 times); its"
    assert bench.said[0].startswith("engine 1 on "), bench.said
    assert why in bench.said[0], bench.said
    assert len(bench.said) == 2, bench.said


def test_a_sampler_that_does_not_start_at_first_is_named(ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: EngineNode, *words: Any, **named: Any) -> Any:
        raise USED_UP

    async def job(bench: Bench) -> None:
        monkeypatch.setattr(EngineNode, "load", fails)
        with pytest.raises(NotReady, match=r"engine [12] on .*: vLLM's engine was lost 4 times") as error:
            await bench.there.sample(requests(1)[0])
        assert error.value.hint == "look"

    bench = Bench()
    bench.use(job)
    assert bench.said == []


def test_what_no_update_changes_is_copied_and_sent_once_for_all(ray_fake: FakeRay) -> None:
    copied: list[int] = []

    async def job(bench: Bench) -> None:
        whole = copies.trained(bench.model, lora_rank=0)

        def fixed() -> dict[str, Any]:
            copied.append(bench.version)
            return dict(whole)

        bench.there._source = replace(bench.there._source, fixed=fixed)
        await bench.there.open()
        assert (copied, ray_fake.kept) == ([], 0)
        pieces = len(list(Parcel.of(whole).pieces()))
        for version in (0, 1):
            assert await played(bench.there, requests(4)) == await played(bench.here, requests(4))
            assert (copied, ray_fake.kept) == ([0], (2 + version) * pieces)
            bench.learn()
        await played(bench.there, requests(4))
        ray_fake.kill(ray_fake.living[0])
        await jobs.until(lambda: any("there again" in text for text in bench.said))
        assert copied == [0, 2], "the one that is started in its place needs them too"

    Bench().use(job)


def test_weights_that_the_drivers_memory_does_not_hold_twice(ray_fake: FakeRay) -> None:
    async def job(bench: Bench) -> None:
        bench.there._source = replace(bench.there._source, changed=lambda: {"wide": torch.zeros(1).expand(1 << 50)})
        with pytest.raises(NotReady, match=r"no room for a copy of 45035\d+ MB of weights") as error:
            await bench.there.sample(requests(1)[0])
        assert error.value.hint

    Bench().use(job)


def test_no_actor_is_ended_through_a_head_that_is_lost(ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def job(bench: Bench) -> None:
        await played(bench.there, requests(2))
        behead(ray_fake, monkeypatch)
        await jobs.until(lambda: joining.lost() is not None)
        await jobs.until(lambda: all(engine.gone for engine in bench.there.engines))
        with pytest.raises(NotReady, match="can no longer be reached"):
            await bench.there.sample(requests(1)[0])

    Bench().use(job)
    assert ray_fake.killed == 0
    for actor in ray_fake.living:
        actor.dead.cancel()
