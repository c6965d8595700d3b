"""The `vllm` policy: vLLM's engine in a process that we start, watch and stop; token ids in, token ids out.

The engine has a copy of the weights. `sample` compares the version that the engine has with the learner's; where they
differ it waits for the replies in flight, hands the weights over (`handover`) and compares the digest of every tensor
on both sides. So nobody calls for a synchronisation, and nobody can forget it: probe, warm-up, evaluation and play
sample from the learner's weights or not at all. What the engine computed for older weights is never used again.

The engine's process may end or get stuck: what it owed is asked of a new one, a few times (`Options.restarts`), and
after that every caller gets the reason with the end of its standard error. Replies that had ended are not touched.

Log-probabilities are those of softmax(logits / temperature), without truncation. A reply ends by the same rules as with
`local` (`engine.Row`), token by token, by the learner's own tokenizer. Seeds are given a request, yet what else is in
flight moves the last bits: not deterministic (guarantees A and B).

Not here: several engines, weights sent from card to card and sleep mode: the hand-over goes through shared memory.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.policy.child import Child, Gone, Line, Patience
from selfplay.policy.engine import Row, refuse
from selfplay.policy.handover import Handover, compare
from selfplay.policy.vllm_setup import RANKS, SCRIPT, Installed, Options, environment, installed, start_hint


class _Lost(Exception):
    """The engine that owed a reply is gone; another may give it."""


@dataclass(slots=True, eq=False)
class _Call:
    """One caller of `sample`."""

    row: Row
    future: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class VLLMPolicy:
    """Samples with vLLM from the weights that `handover` hands out.

    Args:
        handover: where the weights come from; closed with the policy.
        tokenizer: the model's.
        version: how many updates the learner's weights have seen.
        executor: the torch thread, on which weights are read.
        context: prompt and reply, in tokens.
        vocabulary: ids below this are tokens.
        dtype: `bfloat16` or `float32`, the learner's.
        max_rows: most replies decoded together.
        threads: of the engine, on a CPU.
        options: of this backend.
        say: told what a person should know: a start, an engine that was lost.
    """

    def __init__(
        self,
        handover: Handover,
        tokenizer: Tokenizer,
        *,
        version: Callable[[], int],
        executor: Executor,
        context: int,
        vocabulary: int,
        dtype: str = "bfloat16",
        max_rows: int = 32,
        threads: int = 1,
        options: Options | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._handover = handover
        self._tokenizer = tokenizer
        self._version = version
        self._executor = executor
        self._context = context
        self._vocabulary = vocabulary
        self._options = options or Options()
        self._say = say
        self._start = {
            "dtype": dtype,
            "context": context,
            "rows": max_rows,
            "kv_gb": self._options.kv_gb,
            "lora_rank": next((rank for rank in RANKS if rank >= handover.rank), 0) if handover.rank else 0,
        }
        self._environment = environment(threads)
        self._child: Child | None = None
        self._started = 0
        self._lock = asyncio.Lock()
        self._held: int | None = None
        self._calls: dict[int, _Call] = {}
        self._number = 0
        self._answer: asyncio.Future[Line] | None = None
        self._closed = False
        self.tokens = 0
        """Sampled since the start."""

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Trains, does not share its weights, not deterministic."""
        return PolicyCapabilities(trains=True, shares_weights=False, deterministic=False, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None where there is none."""
        return self._child.pid if self._child is not None else None

    async def sample(self, request: Request) -> Completion:
        """Sample one reply, from the weights that the learner has now.

        `Completion.seconds` runs from this call to the reply, waiting included. Temperature 0 takes the likeliest
        token, with the log-probabilities of temperature 1.

        Raises:
            UserError: the prompt is empty, foreign to the vocabulary or longer than the context.
            NotReady: the engine does not start, or was lost too often.
            RunFailed: its weights are not the learner's, a log-probability is not finite, or the policy is closed.
            asyncio.CancelledError: the caller gave up, or the policy was closed meanwhile.
        """
        refuse(request, context=self._context, vocabulary=self._vocabulary)
        began = time.perf_counter()
        while True:
            child, version = await self._ready()
            call = _Call(row=Row(request=request, context=self._context, version=version))
            try:
                await self._play(child, call)
            except _Lost:
                continue
            row = call.row
            assert row.stop is not None, "a reply that ended has a reason"
            return Completion(
                token_ids=tuple(row.token_ids),
                logprobs=tuple(row.logprobs),
                stop=row.stop,
                policy_version=(version, version),
                seconds=time.perf_counter() - began,
            )

    async def aclose(self) -> None:
        """Drop what is in flight (its callers are cancelled), end the engine, remove the weights; idempotent."""
        self._closed = True
        for call in tuple(self._calls.values()):
            call.future.cancel()
        if self._answer is not None:
            self._answer.cancel()
        async with self._lock:
            child, self._child = self._child, None
            if child is not None:
                await child.kill()
            await asyncio.to_thread(self._handover.close)

    async def _play(self, child: Child, call: _Call) -> None:
        """Ask for the reply and wait until `_hear` has ended its row."""
        row, sampling = call.row, call.row.request.sampling
        self._number += 1
        number = self._number
        self._calls[number] = call
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
            del self._calls[number]
            if row.stop is None and child.gone is None:
                child.send({"op": "abort", "id": number})

    async def _ready(self) -> tuple[Child, int]:
        """An engine that has the learner's weights, and their version; nothing is awaited before it is asked."""
        async with self._lock:
            while True:
                if self._closed:
                    raise RunFailed("the policy is closed")
                child = await self._alive()
                try:
                    if self._held != self._version():
                        await self._drained()
                        await self._hand_over(child)
                except _Lost:
                    continue
                if child.gone is None:
                    assert self._held is not None
                    return child, self._held

    async def _alive(self) -> Child:
        """The engine; the next one where it is gone."""
        child = self._child
        if child is not None and child.gone is None:
            return child
        why = ""
        if child is not None:
            why = child.gone or ""
            self._child = None
            await child.kill()
        if self._started > self._options.restarts:
            raise NotReady(
                f"vLLM's engine was lost {self._started} times; the last time {why}",
                hint="what was recorded is kept, and the same command goes on; or sample in the learner's process: "
                "-s policy.backend=local",
            )
        found = await asyncio.to_thread(installed, self._options)
        self._say(f"vLLM's engine was lost: {why}; starting another" if why else f"starting vLLM {found.version}")
        self._started += 1
        self._held = None
        self._child = await self._launch(found)
        return self._child

    async def _launch(self, found: Installed) -> Child:
        loop = asyncio.get_running_loop()
        model = await loop.run_in_executor(self._executor, self._handover.model)
        options = self._options
        try:
            child, answer = await Child.start(
                [found.python, "-P", str(SCRIPT)],
                {**self._start, "model": str(model)},
                environment=self._environment,
                patience=Patience(start=options.start_seconds, stall=options.stall_seconds),
            )
        except Gone as gone:
            raise NotReady(f"vLLM's engine did not start: {gone}", hint=start_hint(str(gone))) from gone
        if answer["op"] != "ready":
            await child.kill()
            text = " ".join(f"{answer['what']}: {answer['message']}".split())[:600]
            raise NotReady(f"vLLM's engine did not start: {text}", hint=start_hint(text))
        child.awaited = lambda: len(self._calls) + (self._answer is not None)
        child.listen(partial(self._hear, child), self._lost)
        return child

    async def _drained(self) -> None:
        """Wait until every reply in flight has ended: each is of one version of the weights."""
        while waits := [call.future for call in self._calls.values() if not call.future.done()]:
            await asyncio.wait(waits)
            await asyncio.sleep(0)

    async def _hand_over(self, child: Child) -> None:
        """Give the engine the learner's weights, and compare.

        Raises:
            RunFailed: it was given others.
            NotReady: there is no room for them.
            _Lost: it is gone.
        """
        if child.gone is not None:
            raise _Lost
        loop = asyncio.get_running_loop()
        version, (folder, sent) = await loop.run_in_executor(
            self._executor, lambda: (self._version(), self._handover.write())
        )
        self._answer = loop.create_future()
        child.send({"op": "weights", "version": version, "path": str(folder), "adapter": self._handover.rank > 0})
        try:
            answer = await self._answer
        finally:
            self._answer = None
        compare(sent, answer["digests"], version=version)
        self._held = version

    def _hear(self, child: Child, line: Line) -> None:
        if line["op"] == "tokens":
            call = self._calls.get(line["id"])
            if call is not None and not call.future.done():
                self._take(child, call, line)
        elif line["op"] == "refused":
            call = self._calls.get(line["id"])
            if call is not None and not call.future.done():
                call.future.set_exception(UserError(f"vLLM does not take the request: {line['message']}"))
        elif line["op"] == "weights" and self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line["op"] == "failed":
            self._say(f"vLLM's engine failed: {line['what']}: {line['message'][:300]}")

    def _take(self, child: Child, call: _Call, line: Line) -> None:
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

    def _lost(self, why: str) -> None:
        for call in tuple(self._calls.values()):
            if not call.future.done():
                call.future.set_exception(_Lost(why))
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(_Lost(why))
