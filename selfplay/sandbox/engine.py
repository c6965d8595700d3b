"""Calls of a Docker engine's API: in threads of their own, limited, with deadlines, retries and a breaker.

The client library blocks, so each call takes a thread; making sandboxes and all else have a budget each (two a core),
so that a queue of the one does not hold up the other. What can be repeated is, after time-outs and errors of the
engine (5xx); an engine that fails again and again is left alone for a while. A command that runs takes no thread:
`open_exec` hands its socket to the event loop.

Not covered: what the calls mean for a sandbox (`container`, `docker`); engines behind TLS or SSH.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import docker.errors
import docker.utils
import requests

from selfplay.errors import NotReady
from selfplay.sandbox import SandboxInfraError
from selfplay.sandbox.image import connect, reach

CALL_SECONDS = 60.0
"""How long one call may take; an engine that stalls once for as long is asked again."""
TRIES = 3
PAUSES_SECONDS = (0.2, 1.0)
BREAK_AFTER = 6
"""So many failures in a row, over all calls, and the engine is left alone."""
BREAK_SECONDS = 5.0
FAILURES = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
_HINTS: Mapping[str, str] = {
    "no space left on device": "free the disk of the engine's folder: docker system prune",
    "no such image": "selfplay doctor --fix",
    "connection": "is the engine up? docker info; systemctl start docker",
    "timed out": "the engine is slow or overloaded: docker info; fewer sandboxes at a time",
}
_T = TypeVar("_T")


class Engine:
    """One engine, for one provider."""

    def __init__(self, *, call_seconds: float = CALL_SECONDS) -> None:
        places = 2 * (os.cpu_count() or 1)
        self._seconds = call_seconds
        self._making = ThreadPoolExecutor(places, thread_name_prefix="selfplay-docker-make")
        self._calling = ThreadPoolExecutor(places, thread_name_prefix="selfplay-docker-call")
        self._local = threading.local()
        self._clients: list[Any] = []
        self.failures = 0
        """In a row, over all calls."""
        self._resume = 0.0
        self._closed = False

    @property
    def rests(self) -> float:
        """For how many seconds the engine is left alone now."""
        return max(0.0, self._resume - time.monotonic()) if self.failures >= BREAK_AFTER else 0.0

    @property
    def api(self) -> Any:
        """The calling thread's client.

        Raises:
            NotReady: no engine answers.
        """
        reach(address(), timeout_seconds=self._seconds)
        if not hasattr(self._local, "api"):
            self._local.api = connect(timeout_seconds=self._seconds)
            self._clients.append(self._local.api)
        return self._local.api

    async def call(self, what: str, do: Callable[[], _T], *, tries: int = 1, making: bool = False) -> _T:
        """`do()` in one of the threads, at most `tries` times; the engine's own errors become ours.

        Raises:
            SandboxInfraError: the engine failed or did not answer.
        """
        last: Exception | None = None
        for turn in range(tries):
            if last is not None:
                await asyncio.sleep(PAUSES_SECONDS[min(turn, len(PAUSES_SECONDS)) - 1])
            self._check(what)
            try:
                pool = self._making if making else self._calling
                result = await asyncio.get_running_loop().run_in_executor(pool, do)
            except (*FAILURES, NotReady) as error:
                last = error
                if not transient(error):
                    break
                self._failed()
            else:
                self.failures = 0
                return result
        assert last is not None
        raise _ours(what, last) from last

    def _check(self, what: str) -> None:
        """Is the engine to be asked at all?"""
        if self._closed:
            raise SandboxInfraError(f"docker, {what}: the provider is closed")
        if left := self.rests:
            raise SandboxInfraError(
                f"docker, {what}: the engine at {address()} failed {self.failures} times in a row, "
                f"and is not asked again for {left:.0f} s",
                hint=_HINTS["connection"],
            )

    def _failed(self) -> None:
        self.failures += 1
        self._resume = time.monotonic() + BREAK_SECONDS

    def close(self) -> None:
        """No calls any more; idempotent."""
        self._closed = True
        self._making.shutdown(wait=False)
        self._calling.shutdown(wait=False)
        while self._clients:
            self._clients.pop().close()


def address() -> str:
    """Where the engine is, for people."""
    return str(docker.utils.kwargs_from_env().get("base_url") or "unix:///var/run/docker.sock")


def transient(error: Exception) -> bool:
    """May the same call go well the next time?"""
    if isinstance(error, docker.errors.APIError):
        status = error.response.status_code if error.response is not None else 500
        return status >= 500 and "no space left" not in str(error)
    return isinstance(error, (requests.exceptions.RequestException, OSError, NotReady))


def _ours(what: str, error: Exception) -> SandboxInfraError:
    if isinstance(error, NotReady):
        return SandboxInfraError(f"docker, {what}: {error.message}", hint=error.hint)
    sentence = str(getattr(error, "explanation", None) or error)
    hint = next((fix for sign, fix in _HINTS.items() if sign in sentence.lower()), "")
    return SandboxInfraError(f"docker at {address()}, {what}: {sentence}", hint=hint)


def open_exec(
    api: Any,
    container: str,
    argv: Sequence[str],
    *,
    user: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, socket.socket]:
    """Start `argv` in `container` and take its streams: (number of the exec, a connected socket). Blocking.

    Raises:
        docker.errors.DockerException, OSError: the engine refused or broke off.
        SandboxInfraError: the engine is behind TLS.
    """
    made = api.exec_create(container, list(argv), stdin=True, environment=dict(environment or {}), user=user)
    stream = api.exec_start(made["Id"], socket=True)
    connection: socket.socket = getattr(stream, "_sock", stream)
    try:
        if isinstance(connection, ssl.SSLSocket):
            raise SandboxInfraError("an engine behind TLS cannot be used", hint="forward its socket: ssh -L")
        # note: a descriptor of its own, because the client library closes its file object when it likes.
        return str(made["Id"]), socket.socket(fileno=os.dup(connection.fileno()))
    finally:
        with contextlib.suppress(OSError):
            stream.close()
            connection.close()


def exec_ended(api: Any, number: str) -> bool:
    """Has this command come to its own end? Blocking.

    Raises:
        docker.errors.APIError: the engine does not know it (any more), or its container does not run.
    """
    state = api.exec_inspect(number)
    return not state["Running"] and state["ExitCode"] is not None
