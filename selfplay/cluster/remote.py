"""The driver's end of a sandbox actor, and of the sandboxes in it: every call has a deadline, every loss is a fault.

What an actor answers is the backend's own value or error. An actor that died, or that did not answer a call in its
time, is given up with the sandboxes in it: from then on each of them raises `SandboxInfraError`. Where the cluster's
head is lost, every call ends with the run's `NotReady`, which no play tries again.

Not here: which actor a sandbox is made in, and what follows a loss (`sandboxes`); what runs in the actor (`node`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from selfplay.cluster import joining
from selfplay.errors import NotReady
from selfplay.sandbox import Difference, SandboxInfraError
from selfplay.sandbox.process import open_archive
from selfplay.types import Result

CALL_SECONDS = 120.0
"""Longest answer to a call that runs no command; what a command may take is added."""
HEADLESS_SECONDS = 10.0
"""Longest wait for a node to close its sandboxes where the head is lost: Ray ends such a driver in a minute."""


class Handle:
    """The driver's end of one actor."""

    def __init__(self, number: int, actor: Any, *, lost: Callable[[Handle], None]) -> None:
        self.number = number
        self.host = "?"
        self.open: set[str] = set()
        """Ids of sandboxes that are not closed, and marks of those that are being made."""
        self.gone = ""
        """What became of it; empty as long as it answers."""
        self.failed_at = -math.inf
        """When a sandbox of it failed last, on the monotonic clock: its disk may be full, its engine dead."""
        self._actor = actor
        self._lost = lost
        self._over: asyncio.Future[NotReady] = asyncio.get_running_loop().create_future()
        """Why nothing on the cluster is called any more."""
        self._archives: dict[str, asyncio.Task[Any]] = {}

    async def call(self, method: str, *words: Any, seconds: float = CALL_SECONDS, **named: Any) -> Any:
        """A method of `SandboxNode`: its value.

        Raises:
            SandboxInfraError: the actor is gone.
            NotReady: the cluster is.
            what the backend raised.
        """
        if self._over.done():
            raise self._over.result()
        if self.gone:
            raise self.fault()
        answer = asyncio.ensure_future(self._answer(method, words, named, seconds=seconds))
        try:
            await asyncio.wait((answer, self._over), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise self._over.result()
            return answer.result()
        finally:
            answer.cancel()

    async def _answer(self, method: str, words: Sequence[Any], named: Mapping[str, Any], *, seconds: float) -> Any:
        import ray

        answer = self._actor.answer.remote(method, *words, **named)
        try:
            async with asyncio.timeout(seconds):
                done, value = await answer
        except TimeoutError:
            raise self._give_up(f"gave no answer to `{method}` in {seconds:g} s") from None
        except ray.exceptions.RayActorError as error:
            raise self._give_up(f"died ({short(error)})") from None
        except ray.exceptions.RayError as error:
            raise SandboxInfraError(f"sandbox actor {self.number}, `{method}`: {short(error)}") from None
        except asyncio.CancelledError:
            joining.cancel(answer)
            raise
        if isinstance(value, SandboxInfraError):
            self.failed_at = time.monotonic()
        if not done:
            raise value
        return value

    async def bring(self, path: str) -> str:
        """Have the node hold the archive at `path`; the name that it has there.

        Raises:
            SandboxInfraError: it cannot be read, or the actor is gone.
        """
        content = await asyncio.to_thread(_read, path)
        name = hashlib.sha256(content).hexdigest()
        if name not in self._archives:
            self._archives[name] = asyncio.create_task(self._taken(name, content))
        try:
            await asyncio.shield(self._archives[name])
        except SandboxInfraError:
            self._archives.pop(name, None)
            raise
        return name

    async def _taken(self, name: str, content: bytes) -> None:
        for dropped in await self.call("take_archive", name, content):
            self._archives.pop(dropped, None)

    def headless(self, error: NotReady) -> None:
        """Every call under way ends with `error`, and every later one but `close`."""
        if not self._over.done():
            self._over.set_result(error)

    async def close(self) -> None:
        """Have the node close what it made, if it can; then end the actor's process."""
        headless = self._over.done()
        with contextlib.suppress(SandboxInfraError):
            if not self.gone:
                await self._answer("overall", ("aclose",), {}, seconds=HEADLESS_SECONDS if headless else CALL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the actor's process, whatever it does; it ends by itself where the head is lost."""
        joining.kill(self._actor)

    def fault(self) -> SandboxInfraError:
        """What became of it, as the rollout knows faults of a machine."""
        return SandboxInfraError(f"sandbox actor {self.number} {self.gone}")

    def _give_up(self, why: str) -> SandboxInfraError:
        if not self.gone:
            self.gone = why
            self.kill()
            self._lost(self)
        return self.fault()


class RemoteServed:
    """See `sandbox.Served`."""

    def __init__(self, node: Handle, number: int) -> None:
        self._node = node
        self._number = number

    async def ask(self, line: bytes, *, timeout_seconds: float, limit: int = 1 << 20) -> bytes:
        """See `sandbox.Served`."""
        answer: bytes = await self._node.call(
            *("ask", self._number, line),
            timeout_seconds=timeout_seconds,
            limit=limit,
            seconds=timeout_seconds + CALL_SECONDS,
        )
        return answer

    async def close(self) -> None:
        """See `sandbox.Served`."""
        await whatever(self._node.call("end", self._number))


class RemoteSandbox:
    """See `sandbox.Sandbox`."""

    def __init__(self, node: Handle, name: str) -> None:
        self.id = name
        self._node = node

    async def _inside(self, name: str, *words: Any, seconds: float = CALL_SECONDS, **named: Any) -> Any:
        return await self._node.call("inside", self.id, name, *words, **named, seconds=seconds)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        output_limit: int = 1 << 20,
    ) -> Result:
        """See `sandbox.Sandbox`."""
        named = {"timeout_seconds": timeout_seconds, "cwd": cwd, "stdin": stdin, "output_limit": output_limit}
        variables = dict(env) if env is not None else None
        seconds = timeout_seconds + CALL_SECONDS
        done: Result = await self._inside("exec", list(argv), **named, env=variables, seconds=seconds)
        return done

    async def put(self, files: Mapping[str, bytes]) -> None:
        """See `sandbox.Sandbox`."""
        await self._inside("put", dict(files))

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """See `sandbox.Sandbox`."""
        content: bytes = await self._inside("get", path, max_bytes=max_bytes)
        return content

    async def serve(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> RemoteServed:
        """See `sandbox.Sandbox`."""
        variables = dict(env) if env is not None else None
        return RemoteServed(self._node, await self._inside("serve", list(argv), cwd=cwd, env=variables))

    async def diff(
        self, base: str | None = None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
    ) -> Difference:
        """See `sandbox.Sandbox`."""
        name = await self._node.bring(base) if base is not None else None
        told: Difference = await self._inside("diff", name, allow=tuple(allow), max_bytes=max_bytes)
        return told

    async def sweep(self) -> int:
        """See `sandbox.Sandbox`."""
        swept: int = await self._inside("sweep")
        return swept

    async def alive(self) -> bool:
        """See `sandbox.Sandbox`; one on an actor that is gone is not."""
        if self._node.gone:
            return False
        try:
            lives: bool = await self._inside("alive")
        except SandboxInfraError:
            return False
        return lives

    async def close(self) -> None:
        """See `sandbox.Sandbox`."""
        self._node.open.discard(self.id)
        await whatever(self._inside("close"))


async def whatever(call: Awaitable[Any]) -> None:
    """Have `call` done, also where the caller is cancelled; a node that is gone has nothing to close."""
    task = asyncio.ensure_future(call)
    with contextlib.suppress(SandboxInfraError, NotReady):
        await asyncio.shield(task)


def _read(path: str) -> bytes:
    with open_archive(path) as file:
        return file.read()


def short(error: Exception) -> str:
    """Ray's sentence, without its list of identifiers."""
    if type(error).__name__ == "ActorUnavailableError":
        return "its process or its node cannot be reached"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([line for line in lines if ": " not in line] or lines)[:200] or type(error).__name__
