"""A server of Search-R1's interface behind a real socket: what it answers, and what it must not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from selfplay.errors import UserError
from selfplay.retrieval import Hit, RetrievalFailed
from selfplay.retrieval import remote as module
from selfplay.retrieval.remote import RemoteRetriever
from tests.http_here import Handler, listening

Reply = Callable[[Handler], None]


class Server:
    """Replies as a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.reply: Reply = lambda handler: None
        self.asked: list[Any] = []
        self.released = threading.Event()
        self.url = ""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Asked(Handler):
        def do_POST(self) -> None:
            made.asked.append(self.body())
            made.reply(self)

    with listening(Asked) as address:
        made.url = f"{address}/retrieve"
        yield made
        made.released.set()


def says(body: Any, status: int = 200) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def reply(handler: Handler) -> None:
        handler.answer(status, data)

    return reply


def search(url: str, query: str = "q", *, k: int = 3, seconds: float = 20.0) -> Sequence[Hit]:
    return asyncio.run(RemoteRetriever(url, seconds=seconds).search(query, k=k))


def row(one: Any, score: Any, **other: Any) -> dict[str, Any]:
    return {"document": {"id": one, "contents": f'"Title {one}"\nText {one}', **other}, "score": score}


def test_hits_are_the_servers_ties_by_id(server: Server) -> None:
    server.reply = says({"result": [[row("b", 0.5), row("c", 0.9), row("a", 0.5), row("d", 0.1)]]})
    hits = search(server.url, "what \ud800 is", k=3)
    assert [(hit.passage.id, hit.score) for hit in hits] == [("c", 0.9), ("a", 0.5), ("b", 0.5)]
    assert (hits[0].passage.title, hits[0].passage.text) == ("Title c", "Text c")
    assert server.asked == [{"queries": ["what ? is"], "topk": 3, "return_scores": True}]
    server.reply = says({"result": [[{"document": {"title": "T", "text": "words"}, "score": 1}]]})
    (hit,) = search(server.url)
    assert (hit.passage.title, hit.passage.text, len(hit.passage.id)) == ("T", "words", 32)
    server.reply = says({"result": [[]]})
    assert search(server.url) == []


GARBAGE = (
    *(b"", b"<html>", b"\xff\xfe", b"[" * 100_000, b"null", b"[]", b'"result"', {}, {"result": None}, {"result": []}),
    *({"result": [[], []]}, {"result": [None]}, {"result": [[None]]}, {"result": [["text"]]}, {"result": [[{}]]}),
    *({"result": [[row("a", None)]]}, {"result": [[row("a", "high")]]}, {"result": [[row("a", float("nan"))]]}),
    *({"result": [[{"document": "text", "score": 1}]]}, {"result": [[{"document": {"id": 1}, "score": 1}]]}),
    *(
        {"result": [[row("a", 1, contents=7)]]},
        {"result": [[row("a", 1, text=7)]]},
        {"result": [[row("a", 1, title=[1])]]},
    ),
    {"result": [[{"id": "a", "contents": "without scores"}]]},
)


def test_garbage_is_an_error_and_never_an_empty_result(server: Server) -> None:
    for body in GARBAGE:
        server.reply = says(body)
        with pytest.raises(RetrievalFailed, match="answers what is no result"):
            search(server.url)


@pytest.mark.parametrize("status", [204, 301, 400, 404, 500, 503])
def test_another_status_is_an_error(server: Server, status: int) -> None:
    server.reply = says({"result": [[]]}, status)
    with pytest.raises(RetrievalFailed, match=f"answers {status}"):
        search(server.url)


def test_a_server_that_is_silent_or_drips_runs_out_of_time(server: Server) -> None:
    server.reply = lambda handler: server.released.wait(30) and None
    began = time.monotonic()
    with pytest.raises(RetrievalFailed, match=r"did not answer within 0\.3 s"):
        search(server.url, seconds=0.3)

    def drips(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        try:
            while not server.released.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            return

    server.reply = drips
    with pytest.raises(RetrievalFailed, match=r"did not answer within 0\.5 s"):
        search(server.url, seconds=0.5)
    assert time.monotonic() - began < 20


def test_a_server_that_is_not_there_breaks_off_or_says_too_much(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RetrievalFailed, match="cannot be asked"):
        search("http://127.0.0.1:1/retrieve")
    server.reply = lambda handler: handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{") and None
    with pytest.raises(RetrievalFailed, match=r"cannot be asked|no result"):
        search(server.url)
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    server.reply = says(b" " * 5000)
    with pytest.raises(RetrievalFailed, match="answers with more than"):
        search(server.url)


def test_what_is_no_address() -> None:
    with pytest.raises(UserError, match="is no address of a retriever"):
        RemoteRetriever("localhost:8000")
    with pytest.raises(UserError, match="k is 0"):
        search("http://127.0.0.1:1", k=0)
