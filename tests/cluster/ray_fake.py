"""A stand-in for Ray in this process, as far as engines and sandboxes use it.

An actor is an object on the test's own event loop. What is sent is pickled, as Ray does. An actor may die or fall
silent when a test says so, and begins once there is a place. For what happens where others fail; that it does so on a
real cluster: test_policies.py, test_sandboxes.py.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import pickle
import socket
import sys
from collections.abc import Generator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from selfplay.cluster import ENGINE_RESOURCE, RESOURCE, head, joining


class RayError(Exception):
    """As Ray's."""


class RayActorError(RayError):
    """The actor is dead."""


class Ref:
    """What a call gives at once; awaiting it gives the answer."""

    def __init__(self, task: asyncio.Future[Any]) -> None:
        self.task = task

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self.task).__await__()


class Actor:
    """An object whose methods are called by `actor.method.remote(...)`."""

    def __init__(self, ray: FakeRay, made: Any) -> None:
        self._ray = ray
        self.made = made
        self.dead = asyncio.get_running_loop().create_future()
        self.silent = asyncio.Event()
        self.begun = False

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *words, **named: Ref(asyncio.create_task(self._do(method, words, named))))

    async def _do(self, method: str, words: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        found = [pickle.loads(word.task.result()) if isinstance(word, Ref) else word for word in words]
        sent, more = pickle.loads(pickle.dumps((found, dict(named))))
        while not self.begun and self not in self._ray.placed:
            if self.dead.done():
                raise RayActorError("The actor died before it began.")
            await asyncio.sleep(0.01)
        self.begun = True
        call = asyncio.ensure_future(getattr(self.made, method)(*sent, **more))
        try:
            await asyncio.wait([call, self.dead], return_when=asyncio.FIRST_COMPLETED)
            if self.dead.done():
                raise RayActorError("The actor died unexpectedly before finishing this task.")
            if self.silent.is_set():
                await self.dead
                raise RayActorError("The actor is dead because it was killed by `ray.kill`.")
            return pickle.loads(pickle.dumps(call.result()))
        finally:
            call.cancel()


class FakeRay(ModuleType):
    """The module `ray`."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = importlib.machinery.ModuleSpec("ray", None)
        self.exceptions = SimpleNamespace(RayError=RayError, RayActorError=RayActorError)
        self.head = socket.create_server(("127.0.0.1", 0))
        self.places = 0
        self.killed = 0
        """How often an actor was to be ended."""
        self.cancelled = 0
        """How often a call was to be stopped."""
        self.kept = 0
        """Values."""
        self.actors: list[Actor] = []

    @property
    def living(self) -> list[Actor]:
        """Actors that did not die."""
        return [actor for actor in self.actors if not actor.dead.done()]

    @property
    def placed(self) -> list[Actor]:
        """Those that have a place."""
        return self.living[: self.places]

    def init(self, **given: Any) -> None:
        """A cluster of this process."""
        assert any(given["resources"].values())

    def shutdown(self) -> None:
        """The end of it."""

    def cluster_resources(self) -> Mapping[str, float]:
        """What its nodes declare."""
        return dict.fromkeys((ENGINE_RESOURCE, RESOURCE), self.places)

    def get_runtime_context(self) -> Any:
        """Where its head is."""
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self.head.getsockname()[1]}")

    def remote(self, kind: type[Any]) -> Any:
        """A class whose objects are actors."""

        def make(*words: Any) -> Actor:
            self.actors.append(Actor(self, kind(*words)))
            return self.actors[-1]

        return SimpleNamespace(options=lambda **given: SimpleNamespace(remote=make))

    def put(self, value: Any) -> Ref:
        """Keep a value."""
        self.kept += 1
        kept: asyncio.Future[bytes] = asyncio.Future(loop=self.actors[-1].dead.get_loop())
        kept.set_result(pickle.dumps(value))
        return Ref(kept)

    def cancel(self, ref: Ref) -> None:
        """Stop a call."""
        self.cancelled += 1
        ref.task.cancel()

    def kill(self, actor: Actor) -> None:
        """End an actor."""
        self.killed += 1
        if not actor.dead.done():
            actor.dead.set_result(None)


def behead(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head dies, which is noticed soon."""
    monkeypatch.setattr(head, "LOOK_SECONDS", 0.05)
    ray.head.close()


def installed(monkeypatch: pytest.MonkeyPatch, *, places: int) -> FakeRay:
    """Ray is this, until the test ends."""
    fake = FakeRay()
    fake.places = places
    monkeypatch.setitem(sys.modules, "ray", fake)
    # note: so that what a test does to its cluster is not known to the next one.
    monkeypatch.setattr(joining, "_head", None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake
