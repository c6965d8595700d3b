"""The local policy as its callers see it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import PreTrainedModel

from selfplay.errors import RunFailed, UserError
from selfplay.policy import Completion, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.types import Sampling, Stop

TOKENIZER = CharTokenizer()
Tiny = Callable[[str, torch.dtype], PreTrainedModel]
Local = Callable[..., LocalPolicy]


def request(
    text: str, *, seed: int = 0, tokens: int = 8, temperature: float = 1.0, stop: tuple[str, ...] = ()
) -> Request:
    """A request for a reply to `text`."""
    sampling = Sampling(temperature=temperature, max_tokens=tokens, stop=stop)
    return Request(prompt_ids=TOKENIZER.encode(text), sampling=sampling, seed=seed)


def mixed(count: int) -> list[Request]:
    """Requests of many lengths, some with equal prompts."""
    return [
        request("say " + "abc"[i % 3] * (1 + 11 * (i % 7)), seed=i, tokens=1 + (i * 13) % 40, temperature=0.6 + i / 40)
        for i in range(count)
    ]


def run(policy: LocalPolicy, requests: Sequence[Request]) -> list[Completion]:
    """Sample all at once, then close."""

    async def play() -> list[Completion]:
        replies = await asyncio.gather(*[policy.sample(r) for r in requests])
        await policy.aclose()
        return replies

    return asyncio.run(play())


def bits(reply: Completion) -> tuple[object, ...]:
    """What must not depend on company."""
    return reply.token_ids, reply.logprobs, reply.stop


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_a_reply_is_the_same_alone_and_in_company(family: str, dtype: torch.dtype, tiny: Tiny, local: Local) -> None:
    model, requests = tiny(family, dtype), mixed(32)
    crowd = run(local(model, max_rows=32), requests)
    scarce = run(local(model, max_rows=5), requests[::-1])[::-1]
    assert list(map(bits, crowd)) == list(map(bits, scarce))
    for i in (0, 6, 31):
        assert bits(run(local(model), [requests[i]])[0]) == bits(crowd[i])


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.bfloat16, 0.12)], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_logprobs_are_those_of_a_plain_forward(
    family: str, dtype: torch.dtype, error: float, tiny: Tiny, local: Local
) -> None:
    model, requests = tiny(family, dtype), mixed(9)
    for asked, reply in zip(requests, run(local(model), requests), strict=True):
        whole = torch.tensor([asked.prompt_ids + reply.token_ids])
        with torch.no_grad():
            logits = model(whole).logits[0, len(asked.prompt_ids) - 1 : -1].float()
        wanted = torch.log_softmax(logits / asked.sampling.temperature, -1)
        picked = wanted.gather(-1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert (picked - torch.tensor(reply.logprobs)).abs().max() < error


def test_weights_changed_in_place_serve_the_next_request(local: Local) -> None:
    model, _ = toy_model(0)
    other, _ = toy_model(1)
    version = [3]
    policy = local(model, version=lambda: version[0])

    async def play() -> tuple[Completion, Completion]:
        before = await policy.sample(request("abc", tokens=20))
        with torch.no_grad():
            for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
                mine.copy_(theirs)
        version[0] = 4
        after = await policy.sample(request("abc", tokens=20))
        await policy.aclose()
        return before, after

    before, after = asyncio.run(play())
    assert (before.policy_version, after.policy_version) == ((3, 3), (4, 4))
    assert bits(after) == bits(run(local(other), [request("abc", tokens=20)])[0])
    assert bits(after) != bits(before)


def test_temperature_zero_is_the_likeliest_token(local: Local) -> None:
    model, _ = toy_model(0)
    [reply] = run(local(model), [request("abc", temperature=0.0, tokens=5)])
    ids = list(TOKENIZER.encode("abc"))
    for token_id in reply.token_ids:
        with torch.no_grad():
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token_id
        ids.append(token_id)


def test_a_cancelled_caller_frees_its_row(local: Local) -> None:
    model, _ = toy_model(0)
    policy = local(model, max_rows=1)

    async def play() -> None:
        endless = asyncio.create_task(policy.sample(request("a", tokens=250, seed=1)))
        waiting = asyncio.create_task(policy.sample(request("b", tokens=2)))
        gone = asyncio.create_task(policy.sample(request("c", tokens=250)))
        await asyncio.sleep(0.05)
        endless.cancel()
        gone.cancel()
        assert (await waiting).stop in (Stop.TOKENS, Stop.DONE)
        assert endless.cancelled()
        await policy.aclose()

    asyncio.run(play())
    assert (policy.stats().rows, policy.stats().waiting) == (0, 0)


def test_closing_cancels_who_waits_and_refuses_who_comes(local: Local) -> None:
    model, _ = toy_model(0)
    policy = local(model)

    async def play() -> None:
        tasks = [asyncio.create_task(policy.sample(request("a", tokens=250, seed=i))) for i in range(3)]
        await asyncio.sleep(0)
        await policy.aclose()
        await policy.aclose()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        with pytest.raises(RunFailed, match="closed"):
            await policy.sample(request("a"))

    asyncio.run(play())


def test_weights_that_are_not_finite_fail_every_caller(local: Local) -> None:
    model, _ = toy_model(0)
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    policy = local(model)

    async def play() -> list[object]:
        return await asyncio.gather(*[policy.sample(request("a", seed=i)) for i in range(3)], return_exceptions=True)

    assert all(isinstance(outcome, RunFailed) for outcome in asyncio.run(play()))


def test_the_torch_thread_is_shared_between_slices(local: Local) -> None:
    model, _ = toy_model(0, context=4096)
    thread = ThreadPoolExecutor(1)
    policy = local(model, executor=thread)

    async def play() -> None:
        task = asyncio.create_task(policy.sample(request("a", tokens=4000, stop=("@",))))
        await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.wrap_future(thread.submit(lambda: None)), timeout=20)
        task.cancel()
        await policy.aclose()

    with thread:
        asyncio.run(play())


def test_a_torch_thread_that_shuts_down_leaves_nobody_waiting(local: Local) -> None:
    model, _ = toy_model(0)
    thread = ThreadPoolExecutor(1)
    policy = local(model, executor=thread)
    hold = threading.Event()

    async def play() -> None:
        thread.submit(hold.wait)
        task = asyncio.create_task(policy.sample(request("a")))
        await asyncio.sleep(0.01)
        thread.shutdown(wait=False, cancel_futures=True)
        hold.set()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        with pytest.raises(RuntimeError, match="shutdown"):
            await policy.sample(request("a"))
        await policy.aclose()

    asyncio.run(play())


def test_the_context_limits_prompt_and_reply(local: Local) -> None:
    model, _ = toy_model(0)
    policy = local(model, max_context=10)
    assert policy.capabilities.max_context == 10
    with pytest.raises(UserError, match="prompt has 10 tokens"):
        run(policy, [request("a" * 10)])
    [reply] = run(local(model, max_context=10), [request("a" * 8, tokens=99, seed=2)])
    assert (len(reply.token_ids), reply.stop) == (2, Stop.CONTEXT)


@pytest.mark.parametrize(
    "bad",
    [
        Request(prompt_ids=(), sampling=Sampling(), seed=0),
        Request(prompt_ids=(10_000,), sampling=Sampling(), seed=0),
        request("a", tokens=0),
        request("a", temperature=-1.0),
        request("a", temperature=math.nan),
        request("a", stop=("",)),
    ],
)
def test_requests_that_make_no_sense_are_refused(bad: Request, local: Local) -> None:
    with pytest.raises(UserError):
        run(local(toy_model(0)[0]), [bad])


def test_it_says_what_it_did(local: Local) -> None:
    policy = local(toy_model(0)[0])
    replies = run(policy, mixed(6))
    stats = policy.stats()
    assert stats.tokens == sum(len(r.token_ids) for r in replies)
    assert (stats.rows, stats.waiting) == (0, 0)
    assert stats.busy_seconds > 0
    assert policy.capabilities.trains
    assert policy.capabilities.deterministic
