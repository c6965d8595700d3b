"""A small server of OpenAI's completions on this machine, behind a real socket; it answers what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


@dataclass
class Served:
    """A server, what it was asked, and what it answers first."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    first: list[Answer] = field(default_factory=list)
    """Answered before anything is sampled, one a request."""
    ids: bool = False
    """Does it tell the ids?"""


@contextmanager
def serving(reply: Callable[[dict[str, Any]], Answer], *, path: str = "/v1/completions") -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.asked.append(body)
            served.keys.append(self.headers.get("Authorization"))
            status, answer = served.first.pop(0) if served.first else reply(body)
            status, answer = (404, {}) if self.path != path else (status, answer)
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
