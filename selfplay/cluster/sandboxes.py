"""Sandboxes on other nodes, behind the protocol that local backends have: `ClusterProvider` is a `SandboxProvider`.

Each actor has the engine client of its node. A new sandbox is made where fewest are open, of the nodes on which none
failed a moment ago; all calls of one sandbox go where it is. An actor that is given up is said so in one line, and
another is started wherever there is a place, within bounds; what was open in the first is a fault of the machine, which
rollouts try again. So is whatever a node with a full disk fails at: what follows is made elsewhere.

Not here: calls, their deadlines and losses (`remote`), what runs in the actor (`node`), the pool of clean sandboxes
(each actor has its own).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import selfplay
from selfplay.cluster import RESOURCE, Nodes, Wanted, joining
from selfplay.cluster.node import About, Given, SandboxNode
from selfplay.cluster.remote import CALL_SECONDS, Handle, RemoteSandbox, whatever
from selfplay.errors import NotReady, SelfplayError
from selfplay.sandbox import Left, Preflight, SandboxCapabilities, SandboxInfraError, SandboxSpec
from selfplay.sandbox.recipe import Recipe
from selfplay.sandbox.wheels import Wheel

CLOCKS_SECONDS = 60.0
"""Farthest that a node's time of day may be from the driver's: what is old is reaped by it."""
AVOIDED_SECONDS = 60.0
"""For how long after a fault other nodes are preferred."""

Say = Callable[[str], None]
_marks = itertools.count()


class ClusterProvider:
    """See `sandbox.SandboxProvider`; made by `open`."""

    def __init__(self, given: Given, nodes: Nodes, *, say: Say) -> None:
        self._given = given
        self._options = nodes
        self._say = say
        self._nodes: dict[int, Handle] = {}
        self._beginning: set[Handle] = set()
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._left = nodes.restarts
        self._why = ""
        self._about: About | None = None
        self._said: dict[Handle, float] = {}
        self._over: NotReady | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        kind: str,
        wanted: Wanted,
        *,
        recipe: Recipe | None = None,
        wheels: Sequence[Wheel] = (),
        say: Say = lambda text: None,
    ) -> ClusterProvider:
        """Join the cluster, start the actors, and see that sandboxes can be made on each, alike.

        `recipe` is the project's own (None: the shipped one); `say` is told of every loss.

        Raises:
            NotReady: the cluster cannot be joined, has no places, or a node makes no sandboxes, or others.
        """
        nodes = wanted.nodes
        files = None if recipe is None else _files(recipe.folder)
        provider = cls(Given(kind=kind, recipe=files, wheels=tuple(wheels)), nodes, say=say)
        await asyncio.to_thread(joining.join, wanted.resources, part=RESOURCE, told=provider._headless)
        try:
            starts = (provider._start(number) for number in range(1, nodes.sandboxes + 1))
            # note: all of them are waited for, so that none begins after the others were ended.
            for failed in await asyncio.gather(*starts, return_exceptions=True):
                if failed is not None:
                    raise failed
        except BaseException:
            await provider.aclose()
            raise
        return provider

    @property
    def _known(self) -> About:
        assert self._about is not None, "it was opened"
        return self._about

    @property
    def name(self) -> str:
        """The backend of the nodes."""
        return self._known.backend

    @property
    def words(self) -> str:
        """For people: the backend and how many nodes have it."""
        return f"{self.name} on {len(self._nodes)} actors of a Ray cluster"

    @property
    def notice(self) -> str:
        """What the person should know of the choice."""
        return self._known.notice

    @property
    def capabilities(self) -> SandboxCapabilities:
        """Of the backend."""
        return self._known.capabilities

    @property
    def python(self) -> str:
        """See `sandbox.SandboxProvider`."""
        return self._known.python

    async def create(self, spec: SandboxSpec) -> RemoteSandbox:
        """See `sandbox.SandboxProvider`."""
        return await self._made(spec, pooled=False)

    async def acquire(self, spec: SandboxSpec) -> RemoteSandbox:
        """See `sandbox.SandboxProvider`."""
        return await self._made(spec, pooled=True)

    async def listed(self) -> tuple[Left, ...]:
        """See `sandbox.SandboxProvider`; of every node that has an actor, each once."""
        found = await asyncio.gather(*(node.call("overall", "listed") for node in self._nodes.values()))
        return tuple({left.id: left for lefts in found for left in lefts}.values())

    async def reap(self, *, older_than_seconds: float | None = None) -> tuple[str, ...]:
        """See `sandbox.SandboxProvider`."""
        calls = (node.call("overall", "reap", older_than_seconds=older_than_seconds) for node in self._nodes.values())
        found = await asyncio.gather(*calls)
        return tuple(sorted({name for names in found for name in names}))

    @classmethod
    async def preflight(cls, *, recipe: Recipe | None = None) -> Preflight:
        """Can sandboxes be made on one node of the cluster?"""
        try:
            provider = await cls.open("auto", Wanted(nodes=Nodes(), ranks=1, threads=1), recipe=recipe)
        except SelfplayError as error:
            return Preflight(ready=False, what=error.message, fix=error.hint)
        await provider.aclose()
        return Preflight(ready=True, what=provider.words)

    async def aclose(self) -> None:
        """Close every sandbox made here, end the actors, leave the cluster; idempotent."""
        if self._closed:
            return
        self._closed = True
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        await asyncio.gather(*(whatever(node.close()) for node in self._nodes.values()))
        self._nodes.clear()
        await asyncio.to_thread(joining.leave, self._headless)

    async def _made(self, spec: SandboxSpec, *, pooled: bool) -> RemoteSandbox:
        node = await self._fittest()
        # note: counted before it is there, so that sandboxes made at once do not all go to one node.
        place = f"new {next(_marks)}"
        node.open.add(place)
        try:
            archive = await node.bring(spec.archive) if spec.archive is not None else None
            name = await node.call("make", replace(spec, archive=archive), pooled=pooled)
            node.open.add(name)
        except SandboxInfraError as error:
            self._failed(node, error)
            raise
        finally:
            node.open.discard(place)
        return RemoteSandbox(node, name)

    def _failed(self, node: Handle, error: SandboxInfraError) -> None:
        """Say that a node made none, once for as long as others are asked first."""
        before = self._said.get(node, -math.inf)
        if not node.gone and time.monotonic() - before > AVOIDED_SECONDS:
            self._said[node] = time.monotonic()
            where = f"sandbox actor {node.number} on {node.host}"
            self._say(f"{where} made none ({error}); others are asked first for {AVOIDED_SECONDS:g} s")

    async def _fittest(self) -> Handle:
        """The node with the fewest open sandboxes; one that is being started is waited for where there is no other."""
        while True:
            if self._over is not None:
                raise self._over
            if self._closed:
                raise SandboxInfraError("the sandboxes of the cluster are closed")
            if self._nodes:
                return min(self._nodes.values(), key=lambda node: (self._avoided(node), len(node.open), node.number))
            if not self._starting:
                raise SandboxInfraError(f"no sandbox actor is left; the last one {self._why}")
            await asyncio.wait(self._starting.values(), return_when=asyncio.FIRST_COMPLETED)

    def _avoided(self, node: Handle) -> bool:
        return time.monotonic() - node.failed_at < AVOIDED_SECONDS

    def _headless(self, error: NotReady) -> None:
        """The cluster's head is lost: no sandbox is made any more, and no call answered. From any thread."""
        self._loop.call_soon_threadsafe(self._give_up, error)

    def _give_up(self, error: NotReady) -> None:
        self._over = error
        for node in (*self._nodes.values(), *self._beginning):
            node.headless(error)
        for task in self._starting.values():
            task.cancel()

    def _lost(self, node: Handle) -> None:
        """Say so, and start another in its place."""
        if self._nodes.get(node.number) is not node or self._closed or self._over is not None:
            return
        del self._nodes[node.number]
        self._why = node.gone
        said = f"sandbox actor {node.number} on {node.host} {node.gone}; its {len(node.open)} open sandboxes are lost"
        if not self._left:
            self._say(f"{said}, and no actor is started again any more")
            return
        self._left -= 1
        self._say(f"{said}, another actor is started, and at most {self._left} after it")
        self._starting[node.number] = asyncio.create_task(self._start_again(node.number))

    async def _start_again(self, number: int) -> None:
        try:
            await self._start(number)
        except SelfplayError as error:
            self._why = f"could not be started again: {error.message}"
            self._say(f"sandbox actor {number} {self._why}")
        else:
            self._say(f"sandbox actor {number} is there again, on {self._nodes[number].host}")
        finally:
            del self._starting[number]

    async def _start(self, number: int) -> None:
        """An actor wherever there is a place, begun and compared with the others.

        Raises:
            NotReady: there is no place, or it makes no sandboxes, or others, or its node's files are not to be had.
        """
        import ray

        kind = ray.remote(SandboxNode).options(
            num_cpus=0, resources={RESOURCE: 1}, max_restarts=0, max_concurrency=1000, scheduling_strategy="SPREAD"
        )
        node = Handle(number, kind.remote(self._given), lost=self._lost)
        self._beginning.add(node)
        try:
            await self._begin(node)
        except BaseException as error:
            node.kill()
            if isinstance(error, SandboxInfraError):
                hint = "look: ray status; or wait longer: -s 'run.cluster={place_seconds = 600.0}'"
                raise NotReady(error.message, hint=hint) from error
            if isinstance(error, SelfplayError) and error is not self._over:
                raise NotReady(f"sandbox actor {number}: {error.message}", hint=error.hint) from error
            if isinstance(error, OSError | ValueError):
                hint = "look at its node: selfplay doctor, and whether ~/.cache/selfplay can be written there"
                raise NotReady(f"sandbox actor {number}: {error}", hint=hint) from error
            raise
        finally:
            self._beginning.discard(node)
        self._nodes[number] = node

    async def _begin(self, node: Handle) -> None:
        seconds = self._options.place_seconds
        lacking = await node.call("lacking", seconds=seconds)
        for wheel in (wheel for wheel in self._given.wheels if wheel.sha256 in lacking):
            await node.call("take_wheel", wheel.sha256, await asyncio.to_thread(wheel.path.read_bytes))
        about: About = await node.call("begin", seconds=max(seconds, CALL_SECONDS))
        node.host = about.host
        self._about = self._about or about
        refuse_unlike(about, self._about, now=time.time())


def refuse_unlike(found: About, first: About, *, now: float) -> None:
    """Nodes of one run are alike: else a verdict would depend on where it was made.

    Raises:
        NotReady: `found` is of another version than the driver, makes other sandboxes than the `first`, or its clock
            is wrong.
    """
    if found.version != selfplay.__version__:
        raise NotReady(
            f"{found.host} has selfplay {found.version}, and the driver {selfplay.__version__}",
            hint=f"there: pip install selfplay-curriculum=={selfplay.__version__}",
        )
    if abs(found.clock - now) > CLOCKS_SECONDS:
        raise NotReady(
            f"the clock of {found.host} is {found.clock - now:+.0f} s from the driver's", hint="there: chronyc makestep"
        )
    for what, own, wanted in (
        ("sandbox", found.backend, first.backend),
        ("image", found.image, first.image),
        ("interpreter", found.python, first.python),
    ):
        if own != wanted:
            raise NotReady(
                f"the {what} of {found.host} is `{own}`, and that of {first.host} `{wanted}`",
                hint="name one that all have: --sandbox bubblewrap; images: selfplay sandbox build, from one recipe",
            )


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
