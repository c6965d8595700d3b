"""The driver's end of an engine's actor: every call has a deadline, whatever it owed when it was lost is told so.

Seconds are counted in waits, and no clock is read: a driver that was itself stopped for an hour has waited once. A
reply may take long where many are asked for, so its time begins again whenever the engine gives another one. While an
engine lives it is asked for a sign of life, which a process that is stopped, or cut off, does not give.

Not here: which engine is asked, its weights, what follows a loss (`policies`); what runs in the actor (`engine_node`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from selfplay.cluster import joining
from selfplay.cluster.engine_node import Given
from selfplay.cluster.remote import short
from selfplay.errors import NotReady
from selfplay.policy import Completion, Request

CALL_SECONDS = 120.0
"""Longest answer to a call that computes nothing, a sign of life among them."""
BEGIN_SECONDS = 300.0
"""Longest that an actor with a place may take to load torch, or to take weights over."""
REPLY_SECONDS = 900.0
"""Longest time in which an engine gives no reply while it owes some, and more for each token that one may have."""
TOKEN_SECONDS = 2.0
PAUSE_SECONDS = 5.0
"""Between two signs of life, and the longest single wait of those that are counted."""


class Lost(Exception):
    """The engine that owed something is gone; another may give it."""


class Engine:
    """One engine; every method runs on one event loop."""

    def __init__(self, number: int, actor: Any, *, lost: Callable[[Engine], None]) -> None:
        self.number = number
        self.host = "?"
        self.held: int | None = None
        """Version of the weights that it has; None before the first."""
        self.calls: set[asyncio.Future[Any]] = set()
        """Replies that it owes."""
        self.replies = 0
        """That it gave."""
        self.gone = ""
        """What became of it; empty as long as it answers."""
        self.over: NotReady | None = None
        """Why nothing on the cluster is called any more."""
        self._given: Given | None = None
        self._actor = actor
        self._lost = lost
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening: asyncio.Task[None] | None = None

    async def begin(self, given: Given, *, seconds: float, say: Callable[[str], None]) -> tuple[str, str]:
        """Wait until it has a place, `seconds` at most, and has begun; versions of selfplay and of its sampler.

        Raises:
            Lost: there was no place, or it does not answer.
            NotReady: it cannot sample.
        """
        self._given = given
        version, self.host = await self.call("here", seconds=seconds)
        words = await self.call("begin", given, seconds=max(seconds, BEGIN_SECONDS))
        self._listening = asyncio.create_task(self._listen(say))
        return version, words

    async def call(self, method: str, *words: Any, seconds: float = CALL_SECONDS, **named: Any) -> Any:
        """A method of `EngineNode`: its value.

        Raises:
            Lost: it is gone, or has no sampler to `sample` with any more.
            NotReady: the cluster is gone.
            what the method raised.
        """
        import ray

        if self.gone:
            raise self.over or Lost(self.gone)
        asked = self._actor.answer.remote(method, *words, **named)
        answer = asyncio.ensure_future(_of(asked))
        if method == "sample":
            self.calls.add(answer)
        try:
            await self._wait(answer, method, seconds=seconds)
            if not answer.done():
                raise self.over or Lost(self.gone)
            done, value = answer.result()
            if method == "sample" and isinstance(value, NotReady):
                raise self.unable(value)
        except ray.exceptions.RayActorError as error:
            raise self.give_up(f"died ({short(error)})") from None
        except ray.exceptions.RayError as error:
            raise self.give_up(f"failed at `{method}` ({short(error)})") from None
        finally:
            self.calls.discard(answer)
            if answer.cancelled() or not answer.done():
                answer.cancel()
                if not self.gone:
                    joining.cancel(asked)
        if not done:
            raise value
        return value

    async def play(self, request: Request) -> Completion:
        """One reply; it is owed from this call on.

        Raises:
            Lost: it is gone, or its sampler is.
            what the sampler raised.
        """
        assert self._given is not None, "it has begun"
        seconds = self._given.start_seconds + REPLY_SECONDS + TOKEN_SECONDS * request.sampling.max_tokens
        reply: Completion = await self.call("sample", request, seconds=seconds)
        self.replies += 1
        return reply

    async def drained(self) -> None:
        """Wait until it owes nothing: each reply is of one version of the weights."""
        while self.calls:
            await asyncio.wait([*self.calls, self._end], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    def cancel(self) -> None:
        """Cancel whoever waits for a reply."""
        for call in tuple(self.calls):
            call.cancel()

    def headless(self, error: NotReady) -> None:
        """The cluster's head is lost: every call under way ends with `error`, and every later one."""
        self.over = error
        self.kill()

    def kill(self) -> None:
        """End the actor's process, whatever it does; what it owes is lost. It ends by itself where the head is lost."""
        self.gone = self.gone or "was ended"
        if self._listening is not None:
            self._listening.cancel()
        if not self._end.done():
            self._end.set_result(None)
        joining.kill(self._actor)

    def give_up(self, why: str) -> Lost:
        """It is gone; whoever owns it is told, once."""
        if not self.gone:
            self.gone = why
            self._lost(self)
            self.kill()
        return Lost(self.gone)

    def unable(self, error: NotReady) -> Lost:
        """It answers, and has no sampler any more: given up, as one that is gone."""
        return self.give_up(f"has no sampler any more ({error.message})")

    async def _wait(self, answer: asyncio.Future[Any], method: str, *, seconds: float) -> None:
        """Until the answer is there, or the engine is gone; it is given up where that takes too long."""
        left, replies = seconds, self.replies
        while not (answer.done() or self._end.done()):
            if method == "sample" and replies != self.replies:
                left, replies = seconds, self.replies
            if left <= 0:
                self.give_up(f"gave no answer to `{method}` in {seconds:g} s")
                return
            pause = min(PAUSE_SECONDS, left)
            await asyncio.wait([answer, self._end], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            left -= pause

    async def _listen(self, say: Callable[[str], None]) -> None:
        with contextlib.suppress(Lost, NotReady):
            while True:
                for text in await self.call("told", seconds=CALL_SECONDS):
                    say(f"engine {self.number} on {self.host}: {text}")
                await asyncio.sleep(PAUSE_SECONDS)


async def _of(asked: Any) -> Any:
    """A task of Ray's that can be waited for with others."""
    return await asked
