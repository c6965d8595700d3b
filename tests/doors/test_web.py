"""Plain HTTP requests, as OpenAI's clients make them, against a real socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from selfplay.doors.proxy import Proxy, rows_of
from selfplay.doors.web import serving
from selfplay.errors import NotReady
from selfplay.policy.scripted import Script, ScriptedPolicy
from selfplay.policy.toy import ALPHABET, CharTokenizer

HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@contextmanager
def served(replies: Script, *, alphabet: str = ALPHABET) -> Iterator[tuple[str, list[str]]]:
    """A server on a thread of its own, with its address and the rows that it notes; it reads `alphabet` alone."""
    lines: list[str] = []
    found: list[Any] = []
    up = threading.Event()

    async def serve() -> None:
        proxy = Proxy(
            ScriptedPolicy(replies, tokenizer=CharTokenizer(alphabet)),
            rendering="plain",
            temperature=1.0,
            max_tokens=64,
            note=lambda row: lines.append(json.dumps(row)),
        )
        over = asyncio.Event()
        with serving(proxy, host="127.0.0.1", port=0, model="toy") as server:
            found.extend([asyncio.get_running_loop(), over, server.server_address[1]])
            up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(60)
    try:
        yield f"http://127.0.0.1:{found[2]}/v1", lines
    finally:
        found[0].call_soon_threadsafe(found[1].set)
        thread.join()


def test_a_chat_completion_tells_text_ids_and_probabilities() -> None:
    with served(["hello", "bye"]) as (url, lines):
        assert requests.get(f"{url}/models", timeout=60).json()["data"] == [{"id": "toy", "object": "model"}]
        answer = requests.post(f"{url}/chat/completions", json=HI, timeout=60).json()
        said = {"role": "assistant", "content": "hello"}
        assert answer["choices"][0]["message"] == said
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert len(answer["choices"][0]["token_ids"]) == len(answer["choices"][0]["token_logprobs"]) == 6
        assert answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
        longer = {**HI, "messages": [*HI["messages"], said, {"role": "user", "content": "and"}]}
        again = requests.post(f"{url}/chat/completions", json=longer, timeout=60).json()
        before = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        assert again["prompt_token_ids"][: len(before)] == before
        assert [one.subject_id for one in rows_of(lines)] == ["default"]


def test_an_episode_is_named_by_header_or_by_key() -> None:
    with served(["a", "b", "c"]) as (url, lines):
        key = {"Authorization": "Bearer play-7"}
        for headers in ({}, key, {**key, "X-Episode": "play-8"}):
            assert requests.post(f"{url}/chat/completions", json=HI, headers=headers, timeout=60).ok
        assert [one.subject_id for one in rows_of(lines)] == ["default", "play-7", "play-8"]


def test_a_stream_is_the_same_in_pieces() -> None:
    with served(["hello"]) as (url, _):
        asked = requests.post(f"{url}/chat/completions", json={**HI, "stream": True}, timeout=60)
        assert asked.headers["Content-Type"] == "text/event-stream"
        pieces = [line.removeprefix("data: ") for line in asked.text.splitlines() if line]
        assert pieces.pop() == "[DONE]"
        choices = [json.loads(piece)["choices"][0] for piece in pieces]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == "hello"
        assert choices[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("path", "data", "status", "why"),
    [
        ("/chat/completions", "{", 400, "Expecting"),
        ("/chat/completions", "[]", 400, "a JSON object"),
        ("/chat/completions", "[" * 100_000, 400, "recursion"),
        ("/chat/completions", '{"messages": ' + "[" * 100_000, 400, "recursion"),
        ("/chat/completions", b"\xff\xfe\x00", 400, "a JSON object"),
        ("/chat/completions", json.dumps({**HI, "stop": 5}), 400, "`stop` is a string"),
        ("/chat/completions", json.dumps({**HI, "max_tokens": float("nan")}), 400, "above 0"),
        ("/chat/completions", json.dumps({**HI, "messages": [{"role": "\ud800"}]}), 400, "no role"),
        ("/chat/completions", json.dumps({**HI, "tools": [{}]}), 400, "litellm_textbased"),
        ("/completions", json.dumps(HI), 404, "nothing is at /v1/completions"),
        ("/chat/completions", json.dumps(HI), 503, "no reply left"),
    ],
)
def test_what_fails_is_an_answer_with_one_sentence(path: str, data: str | bytes, status: int, why: str) -> None:
    with served([]) as (url, lines):
        answer = requests.post(url + path, data=data, timeout=60)
        assert answer.status_code == status
        assert why in answer.json()["error"]["message"]
        assert lines == []


def test_a_length_that_is_none_is_refused() -> None:
    with served([]) as (url, _):
        for length in ("9" * 5000, "-1", "many"):
            host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
            client = http.client.HTTPConnection(host, int(port), timeout=60)
            client.putrequest("POST", "/v1/chat/completions")
            client.putheader("Content-Length", length)
            client.endheaders()
            assert client.getresponse().status == 413
            client.close()


def test_a_port_that_is_taken_is_said_so() -> None:
    async def twice(port: int) -> None:
        with serving(None, host="127.0.0.1", port=port, model="m"):  # type: ignore[arg-type]
            raise AssertionError("it listened")

    with served([]) as (url, _), pytest.raises(NotReady, match="cannot be listened on"):
        asyncio.run(twice(int(url.rpartition(":")[2].removesuffix("/v1"))))
