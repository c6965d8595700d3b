"""A small server of OpenAI's completions on this machine, behind a real socket; it answers what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_here import Handler, listening

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

    class Asked(Handler):
        def do_POST(self) -> None:
            body = self.body()
            served.asked.append(body)
            served.keys.append(self.headers.get("Authorization"))
            status, answer = served.first.pop(0) if served.first else reply(body)
            status, answer = (404, {}) if self.path != path else (status, answer)
            self.answer(status, (answer if isinstance(answer, str) else json.dumps(answer)).encode())

    with listening(Asked) as address:
        served.url = f"{address}/v1"
        yield served
