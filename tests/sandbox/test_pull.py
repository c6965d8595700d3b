"""What the engine is asked to pull, by an image's name, and how long it is waited for; the engine here has nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from selfplay.errors import NotReady
from selfplay.sandbox.image import _pull, build_image
from selfplay.sandbox.recipe import load_recipe
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


class Stalling(Engine):
    """One that begins what it is asked for, and never ends it."""

    released = threading.Event()
    within = False
    """Whether it stalls within its answer; else before it."""

    def do_POST(self) -> None:
        if self.within:
            line = b'{"status": "begun"}\n'
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.released.wait(60.0)
        self.close_connection = True


@pytest.fixture(params=["before its answer", "within its answer"])
def stalling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stalling engine behind `DOCKER_HOST`, which is waited for half a second."""
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PULL_SECONDS", "BUILD_SECONDS"):
        monkeypatch.setattr(f"selfplay.sandbox.image.{name}", 0.5)
    monkeypatch.setattr(Stalling, "within", request.param == "within its answer")
    Stalling.released.clear()
    with listening(Stalling) as address:
        monkeypatch.setenv("DOCKER_HOST", address.replace("http://", "tcp://"))
        yield
        Stalling.released.set()
        for thread in threading.enumerate():
            if thread.name == "selfplay-image":
                thread.join(10.0)


def waited(job: Callable[[], object]) -> None:
    """Do `job`; where it does not end by itself, the test fails."""
    failures: list[BaseException] = []

    def body() -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(30.0)
    stuck = thread.is_alive()
    # note: let go first, or it would wait on while the next test runs.
    Stalling.released.set()
    thread.join()
    assert not stuck, "it waits without a deadline"
    for error in failures:
        raise error


def test_a_pull_that_stalls_is_given_up(stalling: None) -> None:
    pulled: list[bool] = []
    waited(lambda: pulled.append(_pull("python:3.12-slim")))
    assert pulled == [False]


def test_a_base_that_no_registry_gives_in_time_is_not_had(stalling: None) -> None:
    with pytest.raises(NotReady, match=r"no image `absent:1` here, and no registry gives it"):
        waited(lambda: build_image(load_recipe(), base="absent:1"))


def test_a_build_that_stalls_is_given_up(stalling: None) -> None:
    with pytest.raises(NotReady, match="could not be built"):
        waited(lambda: build_image(load_recipe(), base="python:3.12-slim"))


def test_an_import_that_stalls_is_given_up(stalling: None, tmp_path: Path) -> None:
    rootfs = tmp_path / "rootfs.tar"
    rootfs.write_bytes(b"a root file system")
    with pytest.raises(NotReady, match=r"the import of .*rootfs\.tar took longer than"):
        waited(lambda: build_image(load_recipe(), rootfs=rootfs))


class Slow(Engine):
    """One whose answer takes longer than it may be silent, piece by piece."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(5):
            line = b'{"status": "a layer"}\n'
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            threading.Event().wait(0.3)
        self.wfile.write(b"0\r\n\r\n")


def test_a_pull_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("selfplay.sandbox.image.PULL_SECONDS", 1.0)
    with listening(Slow) as address:
        monkeypatch.setenv("DOCKER_HOST", address.replace("http://", "tcp://"))
        assert _pull("python:3.12-slim")
