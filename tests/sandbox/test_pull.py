"""What the engine is asked to pull, by an image's name; the engine here answers, and has nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from selfplay.sandbox.image import _pull
from tests.http_here import Handler, listening

PULLED: list[tuple[str, str]] = []
"""(what, label) of each pull."""


class Engine(Handler):
    """As much of an engine as a pull needs."""

    def do_GET(self) -> None:
        if urlsplit(self.path).path.endswith("/version"):
            self.answer(200, b'{"ApiVersion": "1.44"}')
        else:
            name = unquote(re.sub(r"^.*/images/|/json$", "", self.path))
            self.answer(200, b"{}") if name in NAMES else self.answer(404, b'{"message": "no such image"}')

    def do_POST(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        PULLED.append((asked["fromImage"][0], asked["tag"][0]))
        self.answer(200, b'{"status": "done"}\n')


NAMES = {
    "python:3.12-slim": ("python", "3.12-slim"),
    "python": ("python", "latest"),
    "registry.local:5000/team/python:3.12-slim": ("registry.local:5000/team/python", "3.12-slim"),
    "registry.local:5000/team/python": ("registry.local:5000/team/python", "latest"),
    "python@sha256:" + "0" * 64: ("python", "sha256:" + "0" * 64),
}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine behind `DOCKER_HOST`."""
    PULLED.clear()
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    with listening(Engine) as address:
        monkeypatch.setenv("DOCKER_HOST", address.replace("http://", "tcp://"))
        yield


@pytest.mark.parametrize("name", NAMES)
def test_names_of_images(engine: None, name: str) -> None:
    assert _pull(name)
    [asked] = PULLED
    assert asked == NAMES[name]
