"""A small web server before a `Proxy`: OpenAI's chat completions, so that any harness can play.

`POST /v1/chat/completions` (with `stream` too: the whole reply is one piece), `GET /v1/models`. The episode is named by
the header `X-Episode`, else by the API key, else it is `default`; so a harness that knows neither is given a key of its
own for each play. Beside what OpenAI's answer holds, `prompt_token_ids`, `token_ids` and `logprobs` tell the ids.

Anybody who reaches the port may ask; it listens on this machine alone unless told otherwise. Not here: what is said
(`proxy`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from selfplay.doors.proxy import Proxy, Reply
from selfplay.errors import NotReady, SelfplayError, UserError
from selfplay.types import Stop

EPISODE = "X-Episode"
"""The header that names the episode."""
COMPLETIONS = "/v1/chat/completions"
LONGEST_BODY = 64 << 20
PATIENCE_SECONDS = 3600.0
"""Longest wait for one reply."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Which model there is."""
        if self.path.rstrip("/") != "/v1/models":
            self._refuse(404, f"nothing is at {self.path}; there are /v1/models and /v1/chat/completions")
            return
        self._answer(200, {"object": "list", "data": [{"id": self.server.model, "object": "model"}]})

    def do_POST(self) -> None:
        """One reply of the policy."""
        length = self.headers.get("Content-Length", "")
        # note: Python reads no number of thousands of digits.
        if not length.isdecimal() or len(length) > 20 or int(length) > LONGEST_BODY:
            self.close_connection = True
            self._refuse(413, f"a request has a Content-Length of at most {LONGEST_BODY} bytes")
            return
        raw = self.rfile.read(int(length))
        if self.path.partition("?")[0] != COMPLETIONS:
            self._refuse(404, f"nothing is at {self.path}; there are /v1/models and /v1/chat/completions")
            return
        try:
            body = object_of(raw)
            reply = self.server.ask(self._episode(), body)
        except UserError as error:
            self._refuse(400, f"{error} ({error.hint})" if error.hint else str(error))
        except (SelfplayError, TimeoutError) as error:
            self._refuse(503, str(error) or "no reply came in time")
        else:
            self._say(reply, streams=bool(body.get("stream")))

    def _episode(self) -> str:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        return self.headers.get(EPISODE, "").strip() or key or "default"

    def _say(self, reply: Reply, *, streams: bool) -> None:
        answer = completion_of(reply, model=self.server.model)
        if not streams:
            self._answer(200, answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(stream_of(answer).encode())

    def _refuse(self, status: int, why: str) -> None:
        self._answer(status, refusal_of(why, kind="invalid_request_error" if status < 500 else "server"))

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Listens; its requests are answered on the event loop of whoever made it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], proxy: Proxy, *, model: str, loop: asyncio.AbstractEventLoop) -> None:
        self.model = model
        self._proxy, self._loop = proxy, loop
        super().__init__(address, Handler)

    def ask(self, episode: str, body: Mapping[str, Any]) -> Reply:
        """A reply of the proxy; on a request's thread.

        Raises:
            UserError, TimeoutError: as the proxy; none came in time.
        """
        asked = asyncio.run_coroutine_threadsafe(self._proxy.reply(episode, body), self._loop)
        try:
            return asked.result(PATIENCE_SECONDS)
        except TimeoutError:
            asked.cancel()
            raise


@contextmanager
def serving(proxy: Proxy, *, host: str, port: int, model: str) -> Iterator[Server]:
    """Serve while inside; called on the event loop that the policy runs on. Port 0: any free one.

    Raises:
        NotReady: the port is taken.
    """
    try:
        server = Server((host, port), proxy, model=model, loop=asyncio.get_running_loop())
    except OSError as error:
        raise NotReady(
            f"{host}:{port} cannot be listened on: {error.strerror}", hint="take another: --port N"
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a request's body is.

    Raises:
        UserError: it is none, or too deep to be read.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"a request is a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise UserError("a request is a JSON object")
    return found


def completion_of(reply: Reply, *, model: str) -> dict[str, Any]:
    """OpenAI's answer to a chat completion."""
    return {
        "id": f"{reply.episode}/{reply.branch}/{len(reply.prompt_ids)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "prompt_token_ids": list(reply.prompt_ids),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": "stop" if reply.stop is Stop.DONE else "length",
                "token_ids": list(reply.token_ids),
                "token_logprobs": list(reply.logprobs),
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": len(reply.prompt_ids),
            "completion_tokens": len(reply.token_ids),
            "total_tokens": len(reply.prompt_ids) + len(reply.token_ids),
        },
    }


def refusal_of(why: str, *, kind: str = "invalid_request_error") -> dict[str, Any]:
    """OpenAI's answer to what is not done."""
    return {"error": {"message": why, "type": kind}}


def stream_of(answer: Mapping[str, Any]) -> str:
    """A completion as the events of a stream."""
    return "".join(f"data: {piece}\n\n" for piece in (*_pieces_of(answer), "[DONE]"))


def _pieces_of(answer: Mapping[str, Any]) -> Iterator[str]:
    """The text, then how it ended and what it cost."""
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    (choice,) = answer["choices"]
    yield json.dumps({**shared, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]})
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield json.dumps({**shared, "choices": [end], "usage": answer["usage"]})
