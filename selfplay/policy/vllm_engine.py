"""One engine of the `vllm` policy: its process, the replies that it owes, the weights that it has.

An engine begins without a process. `start` gives it one; once that is gone (`alive` is false) every caller that waited
for it gets `Lost`, and `bury` makes place for the next. Whoever owns the engine decides when: nothing here starts,
waits for another engine, or tries again.

Not here: which engine is asked, when weights are handed over, how often one is started again (`policy.vllm`); the
process itself (`policy.vllm_child`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.policy import Tokenizer
from selfplay.policy.child import Child, Gone, Line, Patience
from selfplay.policy.engine import Row
from selfplay.policy.handover import compare
from selfplay.policy.vllm_setup import start_hint


class Lost(Exception):
    """The engine that owed something is gone; another may give it."""


@dataclass(slots=True, eq=False)
class Call:
    """One reply that somebody waits for."""

    row: Row
    future: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Engine:
    """Every method runs on one event loop.

    Args:
        tokenizer: the model's; it says what ends a reply.
        say: told what a person should know.
    """

    def __init__(self, tokenizer: Tokenizer, *, say: Callable[[str], None]) -> None:
        self._tokenizer = tokenizer
        self._say = say
        self._child: Child | None = None
        self._answer: asyncio.Future[Line] | None = None
        self._number = 0
        self.calls: dict[int, Call] = {}
        self.held: int | None = None
        """Version of the weights that it has; None before the first."""
        self.mending: asyncio.Task[None] | None = None
        """What starts it, or started it last; the owner's."""
        self.tokens = 0
        """Sampled since it was made."""

    @property
    def alive(self) -> bool:
        """Has it a process that answers, as far as is known?"""
        return self._child is not None and self._child.gone is None

    @property
    def pid(self) -> int | None:
        """Of its process; None where there is none."""
        return self._child.pid if self._child is not None else None

    async def start(
        self, command: Sequence[str], first: Line, *, environment: Mapping[str, str], patience: Patience
    ) -> None:
        """Give it a process.

        Raises:
            NotReady: it does not start; the message says why, the hint what to do.
        """
        try:
            child, answer = await Child.start(command, first, environment=environment, patience=patience)
        except Gone as gone:
            raise NotReady(f"vLLM's engine did not start: {gone}", hint=start_hint(str(gone))) from gone
        if answer["op"] != "ready":
            await child.kill()
            text = " ".join(f"{answer['what']}: {answer['message']}".split())[:600]
            raise NotReady(f"vLLM's engine did not start: {text}", hint=start_hint(text))
        child.awaited = lambda: len(self.calls) + (self._answer is not None)
        self._child, self.held = child, None
        child.listen(partial(self._hear, child), self._lose)

    async def bury(self) -> str:
        """End its process and all that it started; why it was gone, empty where there was none or it was alive."""
        child, self._child, self.held = self._child, None, None
        if child is None:
            return ""
        why = child.gone or ""
        await child.kill()
        return why

    async def play(self, call: Call) -> None:
        """Ask for the reply, at once, and wait until its row has ended.

        Raises:
            Lost: it is gone.
            UserError: it does not take the request.
            RunFailed: a log-probability is not finite, or the reply ended too early.
        """
        child = self._child
        assert child is not None, "only an engine that is alive is asked"
        row, sampling = call.row, call.row.request.sampling
        self._number += 1
        number = self._number
        self.calls[number] = call
        child.send(
            {
                "op": "sample",
                "id": number,
                "prompt": row.request.prompt_ids,
                "max_tokens": row.reserve - len(row.request.prompt_ids),
                "temperature": sampling.temperature,
                "seed": row.request.seed & 0x7FFFFFFF,
                "ends": sorted(self._tokenizer.eos_ids),
                "stream": bool(sampling.stop),
            }
        )
        try:
            await call.future
        finally:
            del self.calls[number]
            if row.stop is None and child.gone is None:
                child.send({"op": "abort", "id": number})

    async def drained(self) -> None:
        """Wait until every reply in flight has ended: each is of one version of the weights."""
        while waits := [call.future for call in self.calls.values() if not call.future.done()]:
            await asyncio.wait(waits)
            await asyncio.sleep(0)

    async def load(self, what: Line, sent: Mapping[str, str], *, version: int) -> None:
        """Hand over weights, where `what` says, and compare the digests of what arrived with those `sent`.

        Raises:
            RunFailed: it was given others.
            Lost: it is gone.
        """
        answer = await self._ask({"op": "weights", "version": version, **what})
        compare(sent, answer["digests"], version=version)
        self.held = version

    async def sleep(self, *, level: int) -> None:
        """Have it give its card's memory back, once no reply is in flight; the next weights wake it.

        Raises:
            Lost: it is gone.
        """
        await self.drained()
        # note: from here on nobody asks it for a reply before it was given weights.
        self.held = None
        await self._ask({"op": "sleep", "level": level})

    async def _ask(self, line: Line) -> Line:
        """Send what is answered by one line.

        Raises:
            Lost: it is gone.
        """
        child = self._child
        if child is None or child.gone is not None:
            raise Lost
        self._answer = asyncio.get_running_loop().create_future()
        child.send(line)
        try:
            return await self._answer
        finally:
            self._answer = None

    def cancel(self) -> None:
        """Cancel whoever waits for it."""
        for call in tuple(self.calls.values()):
            call.future.cancel()
        if self._answer is not None:
            self._answer.cancel()

    def _hear(self, child: Child, line: Line) -> None:
        if line["op"] == "tokens":
            call = self.calls.get(line["id"])
            if call is not None and not call.future.done():
                self._take(child, call, line)
        elif line["op"] == "refused":
            call = self.calls.get(line["id"])
            if call is not None and not call.future.done():
                call.future.set_exception(UserError(f"vLLM does not take the request: {line['message']}"))
        elif line["op"] in ("weights", "asleep") and self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line["op"] == "failed":
            self._say(f"vLLM's engine failed: {line['what']}: {line['message'][:300]}")

    def _take(self, child: Child, call: Call, line: Line) -> None:
        """Further tokens of one reply; those behind its end are not its own."""
        row = call.row
        for token_id, logprob in zip(line["ids"], line["logprobs"], strict=True):
            if not math.isfinite(logprob):
                hint = "the weights are damaged; resume from an earlier save, with a lower learner.lr"
                call.future.set_exception(RunFailed("a log-probability of vLLM's is not finite", hint=hint))
                return
            row.append(token_id, min(logprob, 0.0), tokenizer=self._tokenizer)
            if row.stop is not None:
                break
        if row.stop is not None:
            self.tokens += len(row.token_ids)
            if line["end"] is None:
                child.send({"op": "abort", "id": line["id"]})
            call.future.set_result(None)
        elif line["end"] is not None:
            call.future.set_exception(RunFailed(f"vLLM ended a reply too early ({line['end']})"))

    def _lose(self, why: str) -> None:
        for call in tuple(self.calls.values()):
            if not call.future.done():
                call.future.set_exception(Lost(why))
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Lost(why))
