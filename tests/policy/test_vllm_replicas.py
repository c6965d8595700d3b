"""Several engines of the vllm policy, with processes that speak the engine's lines: routing, weights, one that is lost.

Real ones: tests/vllm.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.errors import NotReady, UserError
from selfplay.policy import Completion, Request
from selfplay.policy.vllm import VLLMPolicy
from selfplay.policy.vllm_setup import Options, environment
from tests.policy.test_vllm import Bench, bench, request

__all__ = ["bench"]

MakeBench = Callable[..., Bench]
WAIT_SECONDS = 120.0


def of(play: str, *, tokens: int = 4, seed: int = 0) -> Request:
    """A request of the play `play`."""
    return replace(request(tokens=tokens, seed=seed), episode=play)


@pytest.fixture
def two(bench: MakeBench) -> Callable[..., tuple[Bench, VLLMPolicy]]:
    """`two("plain", "plain", "dies")`: a policy of two engines; the third that is started dies at its first request."""

    def make(*modes: str, **options: Any) -> tuple[Bench, VLLMPolicy]:
        one = bench(*(modes or ("plain",)))
        return one, one.policy(replicas=2, **options)

    return make


def run(policy: VLLMPolicy, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `job` with both engines up, then close."""

    async def main() -> None:
        try:
            await policy.sample(request())
            await until(lambda: all(engine.held is not None for engine in policy.engines))
            await job()
        finally:
            await policy.aclose()

    asyncio.run(main())


async def until(true: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.02)


async def again_and_again(policy: VLLMPolicy) -> None:
    """Sample until that fails."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            await policy.sample(request())
            await asyncio.sleep(0.02)


def kill(policy: VLLMPolicy, number: int, how: signal.Signals = signal.SIGKILL) -> None:
    pid = policy.engines[number].pid
    assert pid is not None
    os.kill(pid, how)


def test_plays_are_spread_and_each_stays_where_it_began(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    _, policy = two()

    async def job() -> None:
        before = [engine.tokens for engine in policy.engines]
        await asyncio.gather(*(policy.sample(of(f"play {i}", tokens=1)) for i in range(8)))
        assert [engine.tokens - were for engine, were in zip(policy.engines, before, strict=True)] == [4, 4]
        for name in ("play 0", "play 1"):
            before = [engine.tokens for engine in policy.engines]
            await asyncio.gather(*(policy.sample(of(name, tokens=1, seed=i)) for i in range(6)))
            grown = [engine.tokens - were for engine, were in zip(policy.engines, before, strict=True)]
            assert sorted(grown) == [0, 6]

    run(policy, job)


def test_new_weights_reach_every_engine(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    one, policy = two()

    async def job() -> None:
        for version in (3, 4):
            with torch.no_grad():
                one.model.lm_head.weight.add_(1.0)
            one.version = version
            replies = await asyncio.gather(*(policy.sample(request(seed=i)) for i in range(4)))
            assert {reply.policy_version for reply in replies} == {(version, version)}
            assert [engine.held for engine in policy.engines] == [version, version]

    run(policy, job)
    assert one.launches == 2
    assert not one.handover.folder.exists()


def test_one_is_lost_and_the_other_goes_on_meanwhile(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    one, policy = two("plain", "plain", "slow start")

    async def job() -> None:
        await policy.sample(of("play"))
        home = next(n for n, engine in enumerate(policy.engines) if policy._homes["play"] is engine)
        kill(policy, home)
        await until(lambda: not policy.engines[home].alive)
        # note: the next engine takes ten minutes to start; the weights change meanwhile too.
        for version in (0, 1, 2):
            one.version = version
            reply = await policy.sample(of("play"))
            assert (len(reply.token_ids), reply.policy_version) == (4, (version, version))
        assert not policy.engines[home].alive
        await until(lambda: one.launches == 3)

    run(policy, job)
    assert sum("killed by SIGKILL" in text for text in one.said) == 1


def test_what_a_stuck_one_owes_is_asked_of_the_other(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    one, policy = two("plain", "plain", "plain", stall_seconds=4.0, restarts=20)

    async def job() -> None:
        kill(policy, 0, signal.SIGSTOP)
        replies: list[Completion] = await asyncio.gather(*(policy.sample(request(seed=i)) for i in range(6)))
        assert [len(reply.token_ids) for reply in replies] == [4] * 6
        await until(lambda: one.launches >= 3 and policy.engines[0].alive and policy.engines[0].held is not None)
        replies = await asyncio.gather(*(policy.sample(request(seed=i)) for i in range(6)))
        assert min(engine.tokens for engine in policy.engines) > 0

    run(policy, job)
    assert [text for text in one.said if "it said nothing for 4 s" in text]


def test_one_that_cannot_be_started_again_ends_it_with_a_sentence(
    two: Callable[..., tuple[Bench, VLLMPolicy]],
) -> None:
    _, policy = two("plain", "plain", "ends at start")

    async def job() -> None:
        kill(policy, 0)
        with pytest.raises(NotReady, match=r"did not start: it ended with exit code 3"):
            await again_and_again(policy)

    run(policy, job)


def test_losses_are_counted_over_all_engines(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    _, policy = two("plain", restarts=1)

    async def job() -> None:
        kill(policy, 0)
        kill(policy, 1)
        with pytest.raises(NotReady, match=r"lost 2 times; the last time it was killed by SIGKILL"):
            await again_and_again(policy)

    run(policy, job)


def test_closing_ends_engines_that_are_still_starting(two: Callable[..., tuple[Bench, VLLMPolicy]]) -> None:
    one, policy = two("slow start")

    async def main() -> None:
        waiting = asyncio.create_task(policy.sample(request()))
        await until(lambda: (one.folder / "launches").exists() and one.launches == 2)
        await policy.aclose()
        await asyncio.wait([waiting])

    asyncio.run(main())
    started = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _is_of(path, one.folder)]
    assert not started


def _is_of(cmdline: Path, folder: Path) -> bool:
    try:
        environ = cmdline.with_name("environ").read_bytes()
    except OSError:
        return False
    return f"FAKE_ENGINE={folder}".encode() in environ and b"engine_fake" in cmdline.read_bytes()


def test_each_engine_has_its_card() -> None:
    options = Options(replicas=2, cards="1 3")
    assert [environment(1, card=options.card(n))["CUDA_VISIBLE_DEVICES"] for n in (0, 1)] == ["1", "3"]
    assert Options(replicas=2).card(1) == ""
    with pytest.raises(UserError, match="names 1 cards"):
        Options(replicas=2, cards="1")
    with pytest.raises(UserError, match="sets replicas to 0"):
        Options(replicas=0)
