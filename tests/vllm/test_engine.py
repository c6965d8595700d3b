"""A real vLLM as sampler of a real learner: the contract of `local`, new weights, adapters, faults."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from selfplay.errors import NotReady, UserError
from selfplay.policy import Completion, Request
from selfplay.probe import sample_of
from selfplay.types import Example, Sampling, Stop
from tests.vllm.conftest import CONTEXT, TOKENIZER, Bench

ERROR = 2e-3
"""Nats, in float32."""


def request(
    text: str, *, seed: int = 0, tokens: int = 8, temperature: float = 1.0, stop: tuple[str, ...] = ()
) -> Request:
    """A request for a reply to `text`."""
    sampling = Sampling(temperature=temperature, max_tokens=tokens, stop=stop)
    return Request(prompt_ids=TOKENIZER.encode(text), sampling=sampling, seed=seed)


async def gather(bench: Bench, requests: Sequence[Request]) -> list[Completion]:
    """All at once."""
    return await asyncio.gather(*[bench.policy.sample(one) for one in requests])


def disagreement(bench: Bench, requests: Sequence[Request], replies: Sequence[Completion]) -> float:
    """Greatest difference to the learner's log-probabilities of the same tokens, in nats."""
    worst = 0.0
    for asked, reply in zip(requests, replies, strict=True):
        heat = asked.sampling.temperature or 1.0
        sample = sample_of(asked, reply)
        [scored] = bench.thread.submit(bench.trainer.logprobs, [sample], temperature=heat).result()
        worst = max([worst, *(abs(a - b) for a, b in zip(reply.logprobs, scored, strict=True))])
    return worst


def learn(bench: Bench) -> None:
    """One supervised update, large enough to be seen."""
    examples = [Example(role="r", source="test", prompt="abc", replies=("zzz",)) for _ in range(4)]
    bench.thread.submit(bench.trainer.imitate, examples, index=0, total=1).result()


MIXED = [
    request("say " + "abc"[i % 3] * (1 + 11 * (i % 7)), seed=i, tokens=1 + (i * 13) % 40, temperature=0.6 + i / 20)
    for i in range(24)
]
"""Of many lengths and temperatures, some with equal prompts."""


def test_logprobs_are_the_learners_at_every_temperature(bench: Bench) -> None:
    replies = bench.run(gather(bench, MIXED))
    assert disagreement(bench, MIXED, replies) < ERROR
    for asked, reply in zip(MIXED, replies, strict=True):
        assert len(reply.logprobs) == len(reply.token_ids) <= asked.sampling.max_tokens
        ended = reply.token_ids[-1] in TOKENIZER.eos_ids
        assert reply.stop is (Stop.DONE if ended else Stop.TOKENS)
    assert len({reply.token_ids for reply in replies}) > 12


def test_temperature_zero_is_the_likeliest_token_with_the_logprobs_of_one(bench: Bench) -> None:
    asked = [request("abc", temperature=0.0, tokens=6, seed=seed) for seed in (1, 2)]
    replies = bench.run(gather(bench, [*asked, request("abc", tokens=6)]))
    assert replies[0].token_ids == replies[1].token_ids
    assert disagreement(bench, asked, replies[:2]) < ERROR


def test_a_stop_string_ends_a_reply_with_the_token_that_completes_it(bench: Bench) -> None:
    [plain] = bench.run(gather(bench, [request("say", seed=5, tokens=40)]))
    text = TOKENIZER.decode(plain.token_ids)
    stop = text[3:5]
    [reply] = bench.run(gather(bench, [request("say", seed=5, tokens=40, stop=(stop,))]))
    first = text.index(stop) + len(stop)
    assert reply.token_ids == plain.token_ids[:first]
    assert (reply.stop, len(reply.logprobs)) == (Stop.DONE, first)


def test_the_context_limits_prompt_and_reply(bench: Bench) -> None:
    [reply] = bench.run(gather(bench, [request("a" * (CONTEXT - 2), tokens=99, temperature=0.3)]))
    assert len(reply.token_ids) == 2 or reply.stop is Stop.DONE
    assert reply.stop in (Stop.CONTEXT, Stop.DONE)
    with pytest.raises(UserError, match=f"prompt has {CONTEXT} tokens"):
        bench.run(gather(bench, [request("a" * CONTEXT)]))


def test_a_cancelled_caller_leaves_the_others_alone(bench: Bench) -> None:
    async def play() -> Completion:
        gone = [asyncio.create_task(bench.policy.sample(request("a", tokens=200, seed=seed))) for seed in range(8)]
        kept = asyncio.create_task(bench.policy.sample(request("b", tokens=30)))
        await asyncio.sleep(0.2)
        for task in gone:
            task.cancel()
        reply = await kept
        await asyncio.gather(*gone, return_exceptions=True)
        assert not bench.policy.engines[0].calls
        return reply

    told = len(bench.said)
    assert bench.run(play()).token_ids
    assert len(bench.said) == told, "the same engine"


def test_changed_weights_change_the_replies_and_agree_again(bench: Bench) -> None:
    asked = [request("abc", seed=seed, tokens=12) for seed in range(8)]
    before, version = bench.run(gather(bench, asked)), bench.trainer.policy_version
    learn(bench)
    told = len(bench.said)
    after = bench.run(gather(bench, asked))
    assert {reply.policy_version for reply in after} == {(version + 1, version + 1)}
    assert [reply.token_ids for reply in before] != [reply.token_ids for reply in after]
    assert disagreement(bench, asked, after) < ERROR
    assert disagreement(bench, asked, before) > 10 * ERROR, "the old log-probabilities are not the new weights'"
    assert len(bench.said) == told, "in the same engine"


def test_a_killed_engine_is_replaced_in_the_midst_of_replies(bench: Bench) -> None:
    async def play() -> list[Completion]:
        first = await bench.policy.sample(request("a"))
        # note: stopped before it is killed, or it might have ended every reply.
        _signal(bench, signal.SIGSTOP)
        late = [asyncio.create_task(bench.policy.sample(request("b", tokens=100, seed=seed))) for seed in range(4)]
        await asyncio.sleep(0.1)
        _signal(bench, signal.SIGKILL)
        return [first, *await asyncio.gather(*late)]

    told = len(bench.said)
    replies = bench.run(play())
    asked = [request("a"), *[request("b", tokens=100, seed=seed) for seed in range(4)]]
    assert disagreement(bench, asked, replies) < ERROR, "the next engine has the learner's weights too"
    assert "killed by SIGKILL" in bench.said[told]


def test_adapters_travel_alone_and_agree(fresh: Callable[..., Bench]) -> None:
    bench = fresh(rank=4)
    asked = [request("abc", seed=seed, tokens=12) for seed in range(4)]
    replies = bench.run(gather(bench, asked))
    assert disagreement(bench, asked, replies) < ERROR
    for _ in range(2):
        learn(bench)
        replies = bench.run(gather(bench, asked))
        assert disagreement(bench, asked, replies) < ERROR
    assert replies[0].policy_version == (2, 2)


@pytest.mark.slow
def test_a_stopped_engine_is_replaced_until_there_were_too_many(fresh: Callable[..., Bench]) -> None:
    bench = fresh(stall_seconds=8.0, restarts=1)

    async def play() -> Completion:
        await bench.policy.sample(request("a"))
        _signal(bench, signal.SIGSTOP)
        return await bench.policy.sample(request("c"))

    assert disagreement(bench, [request("c")], [bench.run(play())]) < ERROR
    assert "it said nothing for 8 s while 1 answer was awaited" in bench.said[1]
    pid = bench.policy.engines[0].pid
    _signal(bench, signal.SIGKILL)
    with pytest.raises(NotReady, match="lost 2 times"):
        bench.run(gather(bench, [request("d")]))
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_two_engines_share_the_work_get_all_weights_and_stand_in_for_each_other(fresh: Callable[..., Bench]) -> None:
    bench = fresh(replicas=2)
    engines = bench.policy.engines

    async def both() -> None:
        await bench.policy.sample(request("a"))
        while not all(engine.alive and engine.held is not None for engine in engines):  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.1)

    async def killed() -> list[Completion]:
        # note: stopped before it is killed, or it might have ended every reply.
        _signal(bench, signal.SIGSTOP)
        late = [asyncio.create_task(bench.policy.sample(one)) for one in MIXED]
        await asyncio.sleep(0.1)
        _signal(bench, signal.SIGKILL)
        return await asyncio.gather(*late)

    bench.run(both())
    for _ in range(2):
        replies = bench.run(gather(bench, MIXED))
        assert disagreement(bench, MIXED, replies) < ERROR
        learn(bench)
    assert disagreement(bench, MIXED, bench.run(killed())) < ERROR
    assert min(engine.tokens for engine in engines) > 0
    bench.run(both())
    assert [text for text in bench.said if "killed by SIGKILL" in text]
    assert disagreement(bench, MIXED, bench.run(gather(bench, MIXED))) < ERROR


@pytest.mark.slow
def test_too_little_memory_is_one_sentence(fresh: Callable[..., Bench]) -> None:
    bench = fresh(kv_gb=100_000.0)
    with pytest.raises(NotReady, match="did not start") as error:
        bench.run(gather(bench, [request("a")]))
    assert "kv_gb" in error.value.hint


def _signal(bench: Bench, number: signal.Signals) -> None:
    pid = bench.policy.engines[0].pid
    assert pid is not None
    os.kill(pid, number)


def test_the_log_probabilities_are_of_the_whole_vocabulary(bench: Bench) -> None:
    asked = [request("abc", temperature=0.25, seed=seed, tokens=1) for seed in range(64)]
    replies = bench.run(gather(bench, asked))
    seen = {reply.token_ids[0]: math.exp(reply.logprobs[0]) for reply in replies}
    assert sum(seen.values()) <= 1.0 + 1e-3
