"""A policy whose engines are actors on the nodes of a cluster: `ClusterPolicy`.

Each engine has a place that a node declares (`ENGINE_RESOURCE`) and a copy of the weights. `sample` compares the
version that the engines have with the learner's; where they differ it waits for the replies in flight, sends the
weights through Ray's object store, a piece at a time and once for all engines that lack them, and compares the digest
of every tensor on both sides. The requests of one play go to the engine that answered its first one.

An engine that is lost, or whose sampler is, is an alarm with its name and its reason. What it owed is asked of another,
or of the one that is started in its place, a few times (`Nodes.restarts`); replies that had ended are not touched.

Not here: one engine (`engines`), what runs in its actor (`engine_node`), the pieces (`policy.parcels`). Not covered:
weights from card to card, engines that sleep while the learner works: they have cards of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import selfplay
from selfplay.cluster import ENGINE_RESOURCE, Wanted, joining
from selfplay.cluster.engine_node import EngineNode, Given, Handed
from selfplay.cluster.engines import BEGIN_SECONDS, Engine, Lost
from selfplay.cluster.remote import short
from selfplay.errors import NotReady, RunFailed, SelfplayError
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.policy.engine import refuse
from selfplay.policy.handover import compare
from selfplay.policy.homes import Homes
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.policy.parcels import Parcel

CLOSE_SECONDS = 30.0
"""Longest that an engine may take to end by itself."""

Say = Callable[[str], None]


@record
class Source:
    """Where the learner's weights are; its functions are called on the torch thread."""

    version: Callable[[], int]
    """How many updates they have seen; any thread may ask."""
    changed: Callable[[], Mapping[str, Any]]
    """What updates change, live, by name."""
    fixed: Callable[[], Mapping[str, Any]] = dict
    """What engines need beside it, once."""
    arithmetic: str = ""
    """What the engines' samplers must be, in words; empty: all the same."""


class ClusterPolicy:
    """Implements `Policy`; the cluster is joined by `open`, or by the first request.

    Args:
        given: what every engine begins with.
        source: of the weights.
        wanted: of the cluster.
        executor: the torch thread, on which weights are read.
        say: told what a person should know of an engine.
        alarm: told of every engine that is lost.
    """

    def __init__(
        self, given: Given, source: Source, *, wanted: Wanted, executor: Executor, say: Say, alarm: Say
    ) -> None:
        self._given = given
        self._source = source
        self._wanted = wanted
        self._executor = executor
        self._say = say
        self._alarm = alarm
        self._engines: dict[int, Engine] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._homes: Homes[Engine] = Homes(lambda engine: len(engine.calls))
        self._left = wanted.nodes.restarts
        self._why = ""
        self._words = source.arithmetic
        self._renewing: asyncio.Task[None] | None = None
        self._door = asyncio.Lock()
        self._beginning: set[Engine] = set()
        self._given_once = False
        """Did engines ever take weights over? Before, a sampler that does not start ends the run."""
        self._loop: asyncio.AbstractEventLoop
        self._over: NotReady | None = None
        self._open = self._closed = False

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Those of the engines' samplers, but for weights of their own."""
        local = not isinstance(self._given.model, Handed)
        return PolicyCapabilities(
            trains=True, shares_weights=False, deterministic=local, max_context=self._given.context
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._given.tokenizer

    @property
    def engines(self) -> Sequence[Engine]:
        """Those that are there now, to be looked at."""
        return tuple(self._engines.values())

    async def open(self) -> None:
        """Join the cluster and start the engines, without weights; idempotent.

        Raises:
            NotReady: the cluster cannot be joined, has no places, or a node has no sampler, or another.
        """
        async with self._door:
            if self._open or self._closed:
                return
            self._loop = asyncio.get_running_loop()
            whole, told = self._wanted.resources, self._headless
            await asyncio.to_thread(joining.join, whole, part=ENGINE_RESOURCE, told=told)
            self._open = True
            starts = [self._start(number) for number in range(1, self._wanted.nodes.engines + 1)]
            # note: all of them are waited for, so that none begins after the others were ended.
            for failed in await asyncio.gather(*starts, return_exceptions=True):
                if failed is not None:
                    self._why = str(failed)
                    raise failed

    async def sample(self, request: Request) -> Completion:
        """Sample one reply, from the weights that the learner has now.

        `Completion.seconds` runs from this call to the reply, waiting included.

        Raises:
            UserError: the prompt is empty, foreign to the vocabulary or longer than the context.
            NotReady: as `open`, a sampler does not start at first, or no engine is left.
            RunFailed: an engine has other weights, a log-probability is not finite, or the policy is closed.
            asyncio.CancelledError: the caller gave up, or the policy was closed meanwhile.
        """
        refuse(request, context=self._given.context, vocabulary=self._given.vocabulary)
        began = time.perf_counter()
        while True:
            engine = await self._ready(request.episode)
            try:
                reply = await engine.play(request)
            except Lost:
                continue
            return replace(reply, seconds=time.perf_counter() - began)

    async def aclose(self) -> None:
        """Drop what is in flight (its callers are cancelled), end the actors, leave the cluster; idempotent."""
        was_closed, self._closed = self._closed, True
        tasks = [*self._starting.values(), *([self._renewing] if self._renewing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for engine in self.engines:
            engine.cancel()
        async with self._door:
            ends = (engine.call("aclose", seconds=CLOSE_SECONDS) for engine in self.engines)
            await asyncio.gather(*ends, return_exceptions=True)
            for engine in self.engines:
                engine.kill()
            self._engines.clear()
            if self._open and not was_closed:
                await asyncio.to_thread(joining.leave, self._headless)

    async def _ready(self, episode: str) -> Engine:
        """An engine that has the learner's weights; nothing is awaited before it is asked."""
        while True:
            await self.open()
            if self._closed:
                raise RunFailed("the policy is closed")
            if self._over is not None:
                raise self._over
            version = self._source.version()
            if able := [engine for engine in self.engines if engine.held == version]:
                return self._homes.of(episode, able)
            if self._engines:
                # note: for all who wait; one who gives up does not stop it.
                await asyncio.shield(self._renewal())
            elif self._starting:
                await asyncio.wait(tuple(self._starting.values()), return_when=asyncio.FIRST_COMPLETED)
            else:
                raise NotReady(
                    f"no engine is left on the cluster; the last one {self._why}",
                    hint="what was recorded is kept, the same command goes on; see what the cluster has: ray status",
                )

    def _renewal(self) -> asyncio.Task[None]:
        """`_renew`, once at a time."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        return self._renewing

    async def _renew(self) -> None:
        """Give the learner's weights to every engine that has others.

        Raises:
            RunFailed: one has others.
            NotReady: a sampler does not start at first, or there is no room for them.
        """
        engines = [engine for engine in self.engines if engine.held != self._source.version()]
        if not engines:
            return
        await asyncio.gather(*(engine.drained() for engine in engines))
        if fresh := [engine for engine in engines if engine.held is None]:
            await self._fix(fresh)
        version, parcel = await self._copied(self._source.changed)
        await self._send(parcel, engines)
        await self._compared(engines, parcel, "load", {"version": version})
        self._given_once = self._given_once or any(not engine.gone for engine in engines)
        for engine in engines:
            engine.held = version

    async def _fix(self, engines: Sequence[Engine]) -> None:
        """Give these what they need beside what updates change, copied and sent once for all of them."""
        _, fixed = await self._copied(self._source.fixed)
        if fixed.size:
            await self._send(fixed, engines)
            await self._compared(engines, fixed, "keep")

    async def _copied(self, tensors: Callable[[], Mapping[str, Any]]) -> tuple[int, Parcel]:
        """The version of the weights, and those that `tensors` gives; as they are at one moment.

        Raises:
            NotReady: there is no room for a copy of them.
        """
        from selfplay.policy.parcels import Parcel

        def copied() -> tuple[int, Parcel]:
            return self._source.version(), Parcel.of(tensors())

        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, copied)
        except MemoryError as error:
            hint = "the driver's machine holds a copy of what is sent: free memory there, or learn adapters alone"
            raise NotReady(str(error), hint=hint) from error

    async def _send(self, parcel: Parcel, engines: Sequence[Engine]) -> None:
        """All bytes to all of these that are there."""
        import ray

        for start, piece in parcel.pieces():
            try:
                kept = await asyncio.to_thread(ray.put, piece)
            except ray.exceptions.RayError as error:
                raise NotReady(
                    f"{len(piece) / 1e6:.0f} MB of weights do not fit into Ray's object store: {short(error)}",
                    hint="give it more: ray start --object-store-memory=BYTES",
                ) from error
            there = [engine.call("take", start, kept, size=parcel.size) for engine in engines if not engine.gone]
            _raise_others(await asyncio.gather(*there, return_exceptions=True))

    async def _compared(
        self, engines: Sequence[Engine], parcel: Parcel, method: str, named: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Have these engines take the parcel over by `method`, and compare what they then have."""
        seconds = BEGIN_SECONDS + self._given.start_seconds
        there = [engine for engine in engines if not engine.gone]
        calls = (engine.call(method, parcel.entries, seconds=seconds, **named) for engine in there)
        found: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        for number, (engine, value) in enumerate(zip(there, found, strict=True)):
            if isinstance(value, NotReady) and value is not self._over:
                found[number] = self._unable(engine, value)
        _raise_others(found)
        for digests in found:
            if not isinstance(digests, BaseException):
                compare(parcel.digests, digests, version=named.get("version", self._source.version()))

    def _unable(self, engine: Engine, error: NotReady) -> Exception:
        """The sampler of `engine` did not start: it is lost, or, where none ever had weights, this ends the run."""
        if self._given_once:
            return engine.unable(error)
        return NotReady(f"engine {engine.number} on {engine.host}: {error.message}", hint=error.hint)

    async def _start(self, number: int) -> None:
        """An engine wherever there is a place, begun and compared with the others; it has no weights yet.

        Raises:
            NotReady: there is no place, or it cannot sample, or samples otherwise.
        """
        import ray

        nodes = self._wanted.nodes
        kind = ray.remote(EngineNode).options(
            num_cpus=0,
            num_gpus=nodes.engine_gpus,
            resources={ENGINE_RESOURCE: 1},
            max_restarts=0,
            # note: replies that are awaited must not keep a sign of life from being given.
            max_concurrency=max(1000, 8 * self._given.max_rows),
            scheduling_strategy="SPREAD",
        )
        engine = Engine(number, kind.remote(), lost=self._lost)
        self._beginning.add(engine)
        try:
            version, words = await engine.begin(self._given, seconds=nodes.place_seconds, say=self._say)
            self._words = self._words or words
            refuse_unlike(engine.host, version, words, wanted=self._words)
            if engine.gone:
                raise Lost(engine.gone)
        except BaseException as error:
            engine.kill()
            if isinstance(error, Lost):
                hint = "look: ray status; or wait longer: -s 'run.cluster={engines = N, place_seconds = 600.0}'"
                raise NotReady(f"engine {number} {error}", hint=hint) from error
            if isinstance(error, SelfplayError) and error is not self._over:
                raise NotReady(f"engine {number}: {error.message}", hint=error.hint) from error
            raise
        finally:
            self._beginning.discard(engine)
        self._engines[number] = engine

    def _headless(self, error: NotReady) -> None:
        """The cluster's head is lost: no reply is given any more. From any thread."""
        self._loop.call_soon_threadsafe(self._give_up, error)

    def _give_up(self, error: NotReady) -> None:
        self._over = error
        for engine in (*self.engines, *self._beginning):
            engine.headless(error)
        for task in self._starting.values():
            task.cancel()

    def _lost(self, engine: Engine) -> None:
        """Say so, and start another in its place."""
        if self._engines.get(engine.number) is not engine or self._closed or self._over is not None:
            return
        del self._engines[engine.number]
        self._why = engine.gone
        owed = f"its {len(engine.calls)} open replies are asked of another"
        said = f"engine {engine.number} on {engine.host} {engine.gone}; {owed}"
        if not self._left:
            self._alarm(f"{said}, and no engine is started again any more")
            return
        self._left -= 1
        self._alarm(f"{said}, an engine is started in its place, and at most {self._left} after it")
        self._starting[engine.number] = asyncio.create_task(self._start_again(engine.number))

    async def _start_again(self, number: int) -> None:
        try:
            await self._start(number)
            while (engine := self._engines.get(number)) is not None and engine.held != self._source.version():
                await asyncio.shield(self._renewal())
        except SelfplayError as error:
            self._why = f"could not be started again: {error.message}"
            self._alarm(f"engine {number} {self._why}")
            if (engine := self._engines.pop(number, None)) is not None:
                engine.kill()
        else:
            if engine is not None:
                self._say(f"engine {number} is there again, on {engine.host}")
        finally:
            # note: it may have been lost meanwhile, and another be under way.
            if self._starting.get(number) is asyncio.current_task():
                del self._starting[number]


def refuse_unlike(host: str, version: str, words: str, *, wanted: str) -> None:
    """Engines of one run are alike: else a reply would depend on where it was sampled.

    Raises:
        NotReady: this one is of another version of selfplay, or its sampler is not what is `wanted`.
    """
    if version != selfplay.__version__:
        raise NotReady(
            f"{host} has selfplay {version}, and the driver {selfplay.__version__}",
            hint=f"there: pip install selfplay-curriculum=={selfplay.__version__}",
        )
    if words != wanted:
        raise NotReady(
            f"{host} samples with {words}, and {wanted} is wanted",
            hint="declare selfplay_engine on nodes that are alike: the same packages, the same kind of processor",
        )


def _raise_others(found: Sequence[Any]) -> None:
    """What went wrong beside losses, which are told when they happen."""
    for problem in found:
        if isinstance(problem, BaseException) and not isinstance(problem, Lost):
            raise problem
