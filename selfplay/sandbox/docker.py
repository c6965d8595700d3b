"""Sandboxes out of hardened containers, through the Docker engine's API.

No network, every capability dropped, no new privileges, read-only root with size-limited tmpfs, hard limits on
memory (swap included), processes and CPU, two uids, the engine's default seccomp profile, and a time to live
inside the container. A name is chosen before creation and removed on any failure; what cannot be removed is owed,
tried again, and at last left to the next run's reaper. Podman's socket speaks this API too; it is not tested.

Not covered: what goes on in a container (`container`), the engine's calls (`engine`), building the image (`image`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import socket
import time
import weakref
from typing import Any

import docker.errors
import requests

from selfplay.errors import SelfplayError
from selfplay.sandbox import (
    Left,
    PolicyUnsupported,
    Preflight,
    Sandbox,
    SandboxCapabilities,
    SandboxInfraError,
    SandboxSpec,
)
from selfplay.sandbox.channel import CANDIDATE, KEEPER, agent_argv
from selfplay.sandbox.container import DockerSandbox
from selfplay.sandbox.engine import CALL_SECONDS, FAILURES, TRIES, Engine, open_exec
from selfplay.sandbox.environment import LOOK, PYTHON_INSIDE, tool_environment
from selfplay.sandbox.hardening import OWNER, environment_of, host_config, labels_of, left_of
from selfplay.sandbox.image import has_image, image_tag
from selfplay.sandbox.pool import Pool
from selfplay.sandbox.recipe import Recipe, load_recipe, spec_of
from selfplay.types import Result

_BUSY_SECONDS = 20.0
"""How long a removal that is under way already is waited for."""
_LAST_SECONDS = 1.0
"""What is owed is tried again so much later, before the provider is closed."""


class DockerProvider:
    """Makes containers, single-use."""

    name = "docker"
    capabilities = SandboxCapabilities(network_none=True, limits="hard", isolated=True)
    python = PYTHON_INSIDE

    def __init__(
        self, *, recipe: Recipe | None = None, image: str | None = None, call_seconds: float = CALL_SECONDS
    ) -> None:
        """`image` is the recipe's unless it is given; `call_seconds` is how long the engine may take for one call."""
        self.engine = Engine(call_seconds=call_seconds)
        self.pool = Pool(self.create)
        self._recipe = recipe if recipe is not None else load_recipe()
        self._image = image
        self._live: dict[str, DockerSandbox] = {}
        self._making: dict[str, asyncio.Task[tuple[str, socket.socket]]] = {}
        """Creations under way: a thread of the engine's cannot be called off, only waited for."""
        self._owed: set[str] = set()
        """Names of containers that are to be removed, and may still be there."""
        self._doubtful: set[str] = set()
        """Those whose creation was not answered: the engine may make them later."""
        self._closing: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        self._at_exit = functools.partial(_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def image(self) -> str:
        """The name of the image that sandboxes start from. Blocking.

        Raises:
            NotReady: a test tool is not installed.
        """
        if self._image is None:
            self._image = image_tag(self._recipe, tool_environment(self._recipe.tools))
        return self._image

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        """A ready container with its channel open and the archive unpacked.

        Raises:
            PolicyUnsupported: the spec asks for a network.
            SandboxInfraError: the engine failed; nothing is left behind.
        """
        if spec.network != "none":
            raise PolicyUnsupported(
                "sandbox `docker` gives no network yet, and the spec asks for `public`", hint="use network = none"
            )
        if self._closing is not None:
            raise SandboxInfraError("docker, create: the provider is closed")
        sandbox = DockerSandbox(self, spec)
        self._live[sandbox.id] = sandbox
        making = asyncio.create_task(
            self.engine.call("create", lambda: self._start(sandbox.id, spec), tries=TRIES, making=True)
        )
        self._making[sandbox.id] = making
        try:
            number, connection = await asyncio.shield(making)
            del self._making[sandbox.id]
            await sandbox.connect(number, connection)
            if spec.archive is not None:
                await sandbox.unpack(spec.archive)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _start(self, name: str, spec: SandboxSpec) -> tuple[str, socket.socket]:
        """Make and start the container and its agent; may be called again with the same name. Blocking."""
        api = self.engine.api
        until = time.monotonic() + _BUSY_SECONDS
        self._owed.add(name)
        while True:
            ours = self._made(api, name, spec)
            try:
                api.start(name)
                break
            except docker.errors.NotFound:
                # note: a name is taken before there is a container, and given back where its making is broken off.
                if ours or time.monotonic() > until:
                    raise
                time.sleep(0.05)
        return open_exec(api, name, agent_argv(self.python), user=CANDIDATE)

    def _made(self, api: Any, name: str, spec: SandboxSpec) -> bool:
        """Make the container; False where an earlier try, answered too slowly, has taken its name. Blocking."""
        image = self.image()
        try:
            api.create_container(
                image,
                ["sleep", f"{spec.ttl_seconds:.0f}"],
                name=name,
                user=KEEPER,
                host_config=host_config(api, spec),
                labels=labels_of(spec),
                environment=environment_of(spec),
                working_dir=spec.workdir,
                network_disabled=True,
            )
        except docker.errors.ImageNotFound as error:
            if has_image(api, image):
                raise
            raise SandboxInfraError(
                f"the Docker engine has no image `{image}`", hint="selfplay doctor --fix"
            ) from error
        except docker.errors.APIError as error:
            # note: the name is nobody else's.
            if error.response is None or error.response.status_code != 409:
                raise
            return False
        except (requests.exceptions.RequestException, OSError):
            self._doubtful.add(name)
            raise
        return True

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A clean container out of the pool, else one made now.

        Raises:
            SandboxInfraError, PolicyUnsupported: as `create`.
        """
        return await self.pool.acquire(spec)

    async def remove(self, name: str) -> None:
        """Remove a container by name; one that the engine would not remove now is owed, and tried again."""
        making = self._making.pop(name, None)
        if making is not None:
            await asyncio.wait([making])
            if not making.cancelled() and making.exception() is None:
                making.result()[1].close()
        if name in self._owed:
            with contextlib.suppress(SandboxInfraError):
                await self.engine.call("remove", lambda: self.remove_now(name), tries=TRIES)
        self._live.pop(name, None)

    def remove_now(self, name: str) -> None:
        """Remove a container, its volumes too, whatever state it is in. Blocking."""
        if _remove(self.engine.api, name):
            self._doubtful.discard(name)
        if name not in self._doubtful:
            self._owed.discard(name)

    async def listed(self) -> tuple[Left, ...]:
        """Every container that selfplay made, in any state.

        Raises:
            SandboxInfraError: the engine does not answer.
        """
        found = await self.engine.call(
            "list", lambda: self.engine.api.containers(all=True, filters={"label": OWNER}), tries=TRIES
        )
        now = time.time()
        return tuple(sorted((left_of(one, backend=self.name, now=now) for one in found), key=lambda left: left.id))

    async def reap(self, *, older_than_seconds: float | None = None) -> tuple[str, ...]:
        """Remove the containers of dead owners, their volumes too.

        Raises:
            SandboxInfraError: the engine does not answer, or one could not be removed; the others are.
        """
        dead = [
            left.id
            for left in await self.listed()
            if left.dead and (older_than_seconds is None or left.age_seconds > older_than_seconds)
        ]

        async def removed(name: str) -> None:
            await self.engine.call("reap", lambda: _remove(self.engine.api, name), tries=TRIES)

        for outcome in await asyncio.gather(*map(removed, dead), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return tuple(dead)

    async def aclose(self) -> None:
        """Remove every container made here; the provider is of no use after it. Idempotent, shielded.

        Raises:
            SandboxInfraError: some could not be removed; the next start's `reap` will.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self.pool.aclose()
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._live.values())))
        if self._owed:
            await self._try_again()
        self.engine.close()
        atexit.unregister(self._at_exit)
        if self._owed:
            raise SandboxInfraError(
                f"{len(self._owed)} containers could not be removed; the next run reaps them",
                hint="selfplay sandbox reap",
            )

    async def _try_again(self) -> None:
        """What is still owed, once more and, where its creation was never answered, twice."""
        for last in (False, True):
            if last:
                self._doubtful.clear()
            # note: an engine that was slow may make now what it was asked for long ago.
            await asyncio.sleep(max(self.engine.rests, _LAST_SECONDS))
            await asyncio.gather(*map(self.remove, list(self._owed)))
            if not self._owed:
                return

    def sweep_at_exit(self) -> None:
        """Remove what is still there when the interpreter ends. Blocking, and only in the process that made it."""
        if self._owed and os.getpid() == self._pid:
            with contextlib.suppress(*FAILURES, SelfplayError):
                for name in list(self._owed):
                    self.remove_now(name)

    @classmethod
    async def preflight(cls, *, recipe: Recipe | None = None) -> Preflight:
        """Make a container and look around in it."""
        try:
            provider = cls(recipe=recipe)
            result = await _look(provider, spec_of(recipe))
        except SelfplayError as error:
            return Preflight(ready=False, what=error.message, fix=error.hint)
        if result.exit_code != 0:
            return Preflight(ready=False, what=f"a container came up wrong: {result.stderr.strip()[-300:]}")
        return Preflight(ready=True, what=f"made a container and looked around in it: {result.stdout.strip()}")


async def _look(provider: DockerProvider, spec: SandboxSpec) -> Result:
    try:
        sandbox = await provider.create(spec)
        return await sandbox.exec([provider.python, "-I", "-c", LOOK], timeout_seconds=30.0)
    finally:
        await provider.aclose()


def _remove(api: Any, name: str) -> bool:
    """Remove a container and its volumes; False where there was none. Blocking."""
    until = time.monotonic() + _BUSY_SECONDS
    seen = False
    while True:
        try:
            api.remove_container(name, force=True, v=True)
            return True
        except docker.errors.NotFound:
            return seen
        except docker.errors.APIError as error:
            # Another removal of it is under way.
            seen = error.response is not None and error.response.status_code == 409
            if not seen or time.monotonic() > until:
                raise
            time.sleep(0.05)


def _at_exit(reference: weakref.ref[DockerProvider]) -> None:
    provider = reference()
    if provider is not None:
        provider.sweep_at_exit()
