"""A learner's weights, a sampler that shares them, and engines that have copies; what engines must do, one job each.

For a real cluster (test_policies.py) and for the stand-in (test_policies_faults.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from selfplay.cluster import Nodes, Wanted, engines
from selfplay.cluster.engine_node import Given
from selfplay.cluster.policies import ClusterPolicy, Source
from selfplay.errors import NotReady
from selfplay.learner import copies
from selfplay.policy import Completion, Policy, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.types import Sampling

WAIT_SECONDS = 300.0
"""Longest wait of a test, however busy the machine is."""


class Bench:
    """Of the toy model."""

    def __init__(self, *, restarts: int = 3, count: int = 2, place_seconds: float = WAIT_SECONDS) -> None:
        self.model, tokenizer = toy_model(0)
        self.version = 0
        self.said: list[str] = []
        self.thread = ThreadPoolExecutor(1)
        self.threads = torch.get_num_threads()
        self.thread.submit(torch.set_num_threads, 1).result()
        self.here = LocalPolicy(self.model, tokenizer, version=lambda: self.version, executor=self.thread, max_rows=4)
        given = Given(
            tokenizer=tokenizer,
            context=256,
            vocabulary=len(tokenizer),
            max_rows=4,
            threads=1,
            model=copies.Form.of(self.model, lora_rank=0, lora_roles=()),
        )
        source = Source(
            version=lambda: self.version,
            changed=lambda: copies.trained(self.model, lora_rank=0),
            fixed=lambda: copies.fixed(self.model, lora_rank=0),
            arithmetic=copies.arithmetic(),
        )
        nodes = Nodes(sandboxes=0, engines=count, restarts=restarts, place_seconds=place_seconds)
        self.there = ClusterPolicy(
            given,
            source,
            wanted=Wanted(nodes=nodes, ranks=1, threads=1),
            executor=self.thread,
            say=self.said.append,
            alarm=self.said.append,
        )

    def learn(self) -> None:
        """Other weights."""
        with torch.no_grad():
            self.model.lm_head.weight.mul_(1.5)
        self.version += 1

    def use(self, *jobs: Callable[[Bench], Awaitable[None]]) -> None:
        """Have the jobs done, one after the other, then close both samplers."""

        async def main() -> None:
            try:
                for job in jobs:
                    await job(self)
            finally:
                await self.there.aclose()
                await self.there.aclose()
                await self.here.aclose()

        try:
            asyncio.run(main())
        finally:
            self.thread.submit(torch.set_num_threads, self.threads).result()
            self.thread.shutdown()


def requests(count: int, *, episode: str = "", tokens: int = 12, word: str = "play") -> list[Request]:
    """Of as many plays, or all of one; those of another word have no engine yet."""
    sampling = Sampling(max_tokens=tokens)
    return [
        Request(prompt_ids=(4, 5, 6 + i % 7), sampling=sampling, seed=i, episode=episode or f"{word} {i}")
        for i in range(count)
    ]


async def played(policy: Policy, asked: Sequence[Request]) -> list[Completion]:
    """All at once; how long it took is no matter."""
    return [replace(reply, seconds=0.0) for reply in await asyncio.gather(*map(policy.sample, asked))]


async def until(true: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.001)


async def samples_alike(bench: Bench) -> None:
    """The replies of one machine, with the version of the weights, before and after an update."""
    for version in (0, 1):
        there = await played(bench.there, requests(12))
        assert there == await played(bench.here, requests(12))
        assert {reply.policy_version for reply in there} == {(version, version)}
        assert [engine.held for engine in bench.there.engines] == [version] * 2
        bench.learn()
    assert min(engine.replies for engine in bench.there.engines) >= 6


async def stays(bench: Bench) -> None:
    """What is asked for one play is asked of one engine."""
    before = Counter({engine.number: engine.replies for engine in bench.there.engines})
    for _ in range(3):
        await played(bench.there, requests(4, episode="one play"))
    after = Counter({engine.number: engine.replies for engine in bench.there.engines})
    assert sorted((after - before).values()) == [12]


async def gives_up(bench: Bench) -> None:
    """A caller that is cancelled is owed nothing."""
    gone = asyncio.create_task(bench.there.sample(requests(1, tokens=250)[0]))
    await until(lambda: any(engine.calls for engine in bench.there.engines))
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert not any(engine.calls for engine in bench.there.engines)


async def loses_one(bench: Bench, hit: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
    """An engine is hit while it owes replies; a sign of life is awaited for `seconds`."""
    asked = requests(8, tokens=100, word=f"after {len(bench.said)}")
    replies = asyncio.create_task(played(bench.there, asked))
    await until(lambda: all(engine.calls for engine in bench.there.engines))
    told = len(bench.said)
    monkeypatch.setattr(engines, "CALL_SECONDS", seconds)
    hit()
    assert await replies == await played(bench.here, asked)
    await until(lambda: any("there again" in text for text in bench.said[told:]))
    monkeypatch.setattr(engines, "CALL_SECONDS", WAIT_SECONDS)
    await until(lambda: len(bench.there.engines) == 2)
    bench.learn()
    assert await played(bench.there, asked) == await played(bench.here, asked), "the new one has the new weights too"
    assert [engine.held for engine in bench.there.engines] == [bench.version] * 2


async def loses_the_last(bench: Bench, hit: Callable[[], None]) -> None:
    """None is left."""
    assert len(await played(bench.there, requests(1))) == 1
    hit()

    async def again_and_again() -> None:
        while True:
            await bench.there.sample(requests(1, tokens=100)[0])

    with pytest.raises(NotReady, match="no engine is left on the cluster; the last one died"):
        await again_and_again()


async def loses_the_head(bench: Bench) -> None:
    """What watches the head tells."""
    replies = asyncio.create_task(played(bench.there, requests(8, tokens=100, word="last")))
    await until(lambda: all(engine.calls for engine in bench.there.engines))
    error, said = NotReady("the head cannot be reached", hint="start it"), len(bench.said)
    await asyncio.to_thread(bench.there._headless, error)
    for _ in range(2):
        with pytest.raises(NotReady) as found:
            await replies
        assert found.value is error
        replies = asyncio.create_task(played(bench.there, requests(1)))
    replies.cancel()
    assert len(bench.said) == said, "no engine is lost, and none is started again"
