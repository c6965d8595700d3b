"""The endpoint policy against a small server of completions, which serves the toy model through a real socket."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.games.echo import CHARACTERS
from selfplay.policy import Completion, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.openai import KEY, OpenAIPolicy
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.types import Sampling, Stop
from tests.served import Answer, Served, serving


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between the policy and this machine, and no key unless a test sets one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv(KEY, raising=False)


@pytest.fixture
def toy() -> Iterator[Served]:
    """The toy model, served."""
    model, tokenizer = toy_model(0, alphabet=CHARACTERS)
    with ThreadPoolExecutor(1) as torch_thread:

        async def sample(body: dict[str, Any]) -> Completion:
            policy = LocalPolicy(model, tokenizer, version=lambda: 0, executor=torch_thread)
            try:
                sampling = Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"])
                return await policy.sample(
                    Request(prompt_ids=tuple(body["prompt"]), sampling=sampling, seed=body["seed"])
                )
            finally:
                await policy.aclose()

        def reply(body: dict[str, Any]) -> Answer:
            found = asyncio.run(sample(body))
            choice = {
                "text": tokenizer.decode(found.token_ids),
                "finish_reason": "stop" if found.stop == Stop.DONE else "length",
                "logprobs": {"token_logprobs": list(found.logprobs)},
                **({"token_ids": list(found.token_ids)} if served.ids else {}),
            }
            return 200, {"choices": [choice]}

        with serving(reply) as served:
            yield served


def asked(
    url: str, *, seed: int = 1, tries: int = 3, text: str = "ab>", stop: tuple[str, ...] = (), seconds: float = 60.0
) -> Completion:
    async def main() -> Completion:
        tokenizer = CharTokenizer(CHARACTERS)
        policy = OpenAIPolicy(url, model="toy", tokenizer=tokenizer, tries=tries, pause=0.01, seconds=seconds)
        try:
            assert not policy.capabilities.trains
            prompt = policy.tokenizer.encode(text)
            sampling = Sampling(temperature=1.0, max_tokens=4, stop=stop)
            return await policy.sample(Request(prompt_ids=prompt, sampling=sampling, seed=seed))
        finally:
            await policy.aclose()

    return asyncio.run(main())


def test_it_gives_what_the_served_model_samples(toy: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    toy.ids = True
    replies = [asked(toy.url, seed=seed) for seed in range(4)]
    assert len({reply.token_ids for reply in replies}) > 1
    assert replies[0].token_ids == asked(toy.url, seed=0).token_ids
    assert all(len(reply.logprobs) == len(reply.token_ids) and min(reply.logprobs) < 0 for reply in replies)
    assert toy.asked[0]["prompt"] == list(CharTokenizer(CHARACTERS).encode("ab>"))
    assert {key: toy.asked[2][key] for key in ("model", "n", "max_tokens", "temperature", "seed")} == {
        **{"model": "toy", "n": 1, "max_tokens": 4, "temperature": 1.0, "seed": 2}
    }
    assert set(toy.keys) == {"Bearer secret"}
    toy.ids = False
    texts = CharTokenizer(CHARACTERS)
    assert texts.decode(asked(toy.url, seed=0).token_ids) == texts.decode(replies[0].token_ids)


def test_a_busy_or_failing_endpoint_is_asked_again(toy: Served) -> None:
    toy.first = [(429, {}), (503, "down")]
    assert asked(toy.url).token_ids
    assert len(toy.asked) == 3
    toy.first = [(500, {})] * 3
    with pytest.raises(NotReady, match="gave no reply in 3 tries: it answered 500"):
        asked(toy.url)


def test_an_endpoint_that_is_not_there() -> None:
    with serving(lambda body: (200, {})) as gone:
        pass
    with pytest.raises(NotReady, match=r"gave no reply in 2 tries: it was not reached \(ConnectionError\)"):
        asked(gone.url, tries=2)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "ReadTimeout"),
        (b"", "ConnectionError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "(ChunkedEncoding|Connection)Error"),
    ],
    ids=["never", "nothing", "half"],
)
def test_an_endpoint_that_says_nothing(said: bytes | None, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread, ExitStack() as held:

        def serve() -> None:
            for _ in range(2):
                line = held.enter_context(server.accept()[0])
                line.recv(65_536)
                if said is not None:
                    line.sendall(said)
                    line.close()

        thread.submit(serve)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        with pytest.raises(NotReady, match=rf"no reply in 2 tries: it was not reached \({why}\)"):
            asked(url, tries=2, seconds=1.0)


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        ((401, {}), UserError, r"refuses the key \(401\)"),
        ((404, {}), UserError, r"serves no model `toy` \(404\)"),
        ((400, "no ids\nhere"), UserError, r"refused the request \(400\): no ids here"),
        ((200, "hello"), NotReady, "is no completion"),
        ((200, {"choices": []}), NotReady, "is no completion"),
        ((200, {"choices": [{"text": None}]}), NotReady, "is no completion"),
    ],
)
def test_answers_that_are_none_are_not_asked_for_again(
    toy: Served, answer: Answer, error: type[Exception], match: str
) -> None:
    toy.first = [answer]
    with pytest.raises(error, match=match):
        asked(toy.url)
    assert len(toy.asked) == 1


def test_an_endpoint_that_does_not_know_the_word_for_ids_is_asked_without_it(toy: Served) -> None:
    toy.first = [(400, "Unrecognized request argument supplied: return_token_ids")]
    assert asked(toy.url).token_ids
    assert ["return_token_ids" in body for body in toy.asked] == [True, False]


def test_first_requests_that_meet_are_all_asked_without_it() -> None:
    learnt = threading.Event()

    def reply(body: dict[str, Any]) -> Answer:
        if "return_token_ids" not in body:
            learnt.set()
            return 200, {"choices": [{"text": "a", "finish_reason": "stop"}]}
        # note: all but the first are refused once somebody has asked again without the word.
        assert served.asked[0] is body or learnt.wait(60)
        return 400, "Unrecognized request argument supplied: return_token_ids"

    async def main() -> list[Completion]:
        policy = OpenAIPolicy(served.url, model="toy", tokenizer=CharTokenizer(CHARACTERS), tries=2, pause=0.01)
        try:
            sampling = Sampling(max_tokens=4)
            return await asyncio.gather(
                *(policy.sample(Request(prompt_ids=(1,), sampling=sampling, seed=seed)) for seed in range(3))
            )
        finally:
            await policy.aclose()

    with serving(reply) as served:
        assert len(asyncio.run(main())) == 3
        assert sum("return_token_ids" not in body for body in served.asked) == 3


def test_a_stop_string_that_is_told_is_kept() -> None:
    choice = {"text": "a", "finish_reason": "stop", "stop_reason": "b"}
    with serving(lambda body: (200, {"choices": [choice]})) as served:
        found = asked(served.url, stop=("b",))
        assert (CharTokenizer(CHARACTERS).decode(found.token_ids), found.stop) == ("ab", Stop.DONE)
        assert found.logprobs == (), "missing is not certain"
        assert served.asked[0]["stop"] == ["b"]


CONTEXT = 8


def tight(body: dict[str, Any]) -> Answer:
    """As vLLM does: what could get longer than the context is refused."""
    if len(body["prompt"]) + body["max_tokens"] > CONTEXT:
        return 400, f"This model's maximum context length is {CONTEXT} tokens"
    return 200, {"choices": [{"text": "a" * body["max_tokens"], "finish_reason": "length"}]}


def of_length(tokens: int) -> Request:
    return Request(prompt_ids=(2,) * tokens, sampling=Sampling(max_tokens=4), seed=1)


@pytest.mark.parametrize(
    ("prompt", "asked_for", "stop"), [(4, 4, Stop.TOKENS), (5, 3, Stop.CONTEXT), (7, 1, Stop.CONTEXT)]
)
def test_no_more_is_asked_for_than_the_context_has_room_for(prompt: int, asked_for: int, stop: Stop) -> None:
    async def main(url: str) -> Completion:
        policy = OpenAIPolicy(url, model="toy", tokenizer=CharTokenizer(CHARACTERS), max_context=CONTEXT)
        try:
            with pytest.raises(UserError, match="the prompt has 8 tokens, and prompt and reply together may have 8"):
                await policy.sample(of_length(CONTEXT))
            return await policy.sample(of_length(prompt))
        finally:
            await policy.aclose()

    with serving(tight) as served:
        found = asyncio.run(main(served.url))
        assert [body["max_tokens"] for body in served.asked] == [asked_for]
    assert (len(found.token_ids), found.stop) == (asked_for, stop)


def test_after_the_end_nothing_more_is_asked() -> None:
    before, refused = set(threading.enumerate()), threading.Event()

    def reply(body: dict[str, Any]) -> Answer:
        refused.set()
        return 503, "down"

    async def main(url: str) -> None:
        policy = OpenAIPolicy(url, model="toy", tokenizer=CharTokenizer(CHARACTERS), max_rows=1, pause=20.0)
        calls = [asyncio.create_task(policy.sample(of_length(3))) for _ in range(2)]
        assert await asyncio.to_thread(refused.wait, 60)
        await policy.aclose()
        await policy.aclose()
        await asyncio.wait(calls, timeout=10)
        assert all(call.cancelled() for call in calls)
        with pytest.raises(RunFailed, match="closed"):
            await policy.sample(of_length(3))

    with serving(reply) as served:
        asyncio.run(main(served.url))
        started = [one for one in set(threading.enumerate()) - before if one.name.startswith("endpoint")]
        for thread in started:
            thread.join(10)
        assert not any(thread.is_alive() for thread in started), "it would try four times more"
        assert len(served.asked) == 1


ENDING = """
import asyncio, sys
from selfplay.policy import Request
from selfplay.policy.openai import OpenAIPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.types import Sampling

async def main():
    policy = OpenAIPolicy(sys.argv[1], model="toy", tokenizer=CharTokenizer())
    call = asyncio.create_task(policy.sample(Request(prompt_ids=(2,), sampling=Sampling(max_tokens=4), seed=1)))
    await asyncio.to_thread(sys.stdin.readline)
    await policy.aclose()
    await asyncio.wait([call])
    print("cancelled" if call.cancelled() else "answered")

asyncio.run(main())
"""


def test_an_answer_that_does_not_come_does_not_hold_the_process() -> None:
    pipe = subprocess.PIPE
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        with subprocess.Popen([sys.executable, "-c", ENDING, url], stdin=pipe, stdout=pipe, text=True) as child:
            try:
                line = server.accept()[0]
                with line:
                    assert line.recv(65_536)
                    said, _ = child.communicate("close\n", timeout=60)
            finally:
                child.kill()
    assert (child.returncode, said) == (0, "cancelled\n")
