"""The `local` policy: our own KV-cache sampler, on the learner's weights, in this process.

`LocalPolicy.sample` waits for its reply while one torch thread decodes all requests in flight together
(`engine`). The thread is an executor that the learner shares, so that weights never change under a step;
the sampler gives it back between slices of a fraction of a second.

Not here: several machines or processes, speculative decoding, top-p and penalties (training refuses them).

Example:
    >>> import asyncio
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from selfplay.policy.toy import toy_model
    >>> from selfplay.types import Sampling
    >>> async def main() -> str:
    ...     model, tokenizer = toy_model(0)
    ...     with ThreadPoolExecutor(1) as torch_thread:
    ...         policy = LocalPolicy(model, tokenizer, version=lambda: 0, executor=torch_thread)
    ...         request = Request(prompt_ids=tokenizer.encode("abc"), sampling=Sampling(max_tokens=4), seed=1)
    ...         reply = await policy.sample(request)
    ...         await policy.aclose()
    ...     return reply.stop.value
    >>> asyncio.run(main())
    'tokens'
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from selfplay.errors import RunFailed
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.policy.engine import Engine, Row, refuse
from selfplay.types import record

_SLICE_SECONDS = 0.25
"""How long the sampler holds the torch thread before others get a turn."""


@record
class SamplerStats:
    """What the sampler has done so far, for the progress screen."""

    tokens: int
    """Sampled since the start."""
    busy_seconds: float
    """Time spent prefilling and decoding."""
    rows: int
    """In flight."""
    waiting: int
    """Requests that wait for a row."""


class _Call:
    """One caller of `sample`: the row that works for it, and how to tell it."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.began = time.perf_counter()
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Completion] = self._loop.create_future()

    def settle(self, outcome: Completion | BaseException | None) -> None:
        """From the torch thread: hand over the reply or the error; None cancels the caller."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Completion | BaseException | None) -> None:
        if self.future.done():
            return
        if outcome is None:
            self.future.cancel()
        elif isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class LocalPolicy:
    """Samples from `model` (any dense decoder of transformers) on the one thread of `executor`.

    Args:
        model: shares its memory with the learner, or is the learner's compute copy; dropout must be 0.
        tokenizer: the model's.
        version: how many updates the weights have seen; called on the torch thread. What was computed for a prompt
            is used again until it changes.
        executor: one thread, shared with whoever changes the weights.
        max_rows: most replies decoded together.
        kv_tokens: most tokens of key/value cache (rows times the longest row); prompts kept for a conversation's next
            turn take up to a quarter more.
        max_context: prompt and reply, in tokens; never more than the model's own limit.
        begin: called on that thread before each slice of work, where others use the model otherwise meanwhile.

    Raises:
        UserError: the model's attention cannot be served.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        version: Callable[[], int],
        executor: Executor,
        max_rows: int = 64,
        kv_tokens: int = 32_768,
        max_context: int | None = None,
        begin: Callable[[], None] | None = None,
    ) -> None:
        own = int(model.config.get_text_config().max_position_embeddings)
        self._context = min(own, kv_tokens, max_context or own)
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._model = model
        self._tokenizer = tokenizer
        self._version = version
        self._executor = executor
        self._begin = begin
        self._engine = Engine(model, tokenizer, max_rows=max_rows, kv_tokens=kv_tokens)
        self._lock = threading.RLock()
        self._waiting: deque[_Call] = deque()
        self._calls: dict[Row, _Call] = {}
        self._running = self._closed = False
        self._idle = threading.Event()
        self._idle.set()
        self._busy = 0.0

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Trains, shares its weights; deterministic where a row has the same bits in any company (`rows`)."""
        alone = self._engine.invariant
        return PolicyCapabilities(trains=True, shares_weights=True, deterministic=alone, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    def stats(self) -> SamplerStats:
        """Counters for the progress screen; any thread may ask."""
        return SamplerStats(
            tokens=self._engine.tokens, busy_seconds=self._busy, rows=len(self._calls), waiting=len(self._waiting)
        )

    async def sample(self, request: Request) -> Completion:
        """Sample one reply; `Completion.seconds` runs from this call to the reply, waiting included.

        Temperature 0 takes the likeliest token (for evaluation), with the log-probabilities of temperature 1.

        Raises:
            UserError: the prompt is empty, foreign to the vocabulary or longer than the context.
            RunFailed: the logits are not finite, or the policy is closed.
            asyncio.CancelledError: the caller gave up, or the policy was closed meanwhile.
        """
        refuse(request, context=self._context, vocabulary=self._vocabulary)
        call = _Call(Row(request=request, context=self._context))
        with self._lock:
            if self._closed:
                raise RunFailed("the policy is closed")
            if not self._running:
                self._submit()
                self._running = True
                self._idle.clear()
            self._waiting.append(call)
        try:
            return await call.future
        finally:
            # harmless after a reply; after a cancellation the row leaves the batch at the next step
            call.row.dropped = True

    async def aclose(self) -> None:
        """Drop what waits or is in flight (its callers are cancelled) and free the cache; idempotent."""
        with self._lock:
            self._closed = True
        await asyncio.to_thread(self._idle.wait)
        with self._lock:
            self._drop(None)

    def _submit(self) -> None:
        self._executor.submit(self._work).add_done_callback(self._ended)

    def _ended(self, slice_: Future[None]) -> None:
        # an executor that shuts down cancels the slice that waits: its callers must not wait for ever
        if slice_.cancelled():
            with self._lock:
                self._drop(None)

    def _work(self) -> None:
        """One slice on the torch thread; goes to the end of the executor's queue while there is more to do."""
        began = time.perf_counter()
        try:
            with _evaluating(self._model):
                if self._begin is not None:
                    self._begin()
                while time.perf_counter() - began < _SLICE_SECONDS:
                    if not self._advance():
                        return
            self._submit()
        except BaseException as error:
            with self._lock:
                self._drop(error)
            raise

    def _advance(self) -> bool:
        """Admit what fits, decode one token a row, deliver; False when nothing is left to do."""
        for row in self._engine.release():
            del self._calls[row]
        with self._lock:
            if self._closed:
                self._drop(None)
                return False
            admitted = self._next()
            if not admitted and not self._calls:
                # a lone request always fits, so nobody waits here; prompts are kept for a conversation's next turn
                self._running = False
                self._idle.set()
                return False
        began, version = time.perf_counter(), self._version()
        finished = self._engine.admit([call.row for call in admitted], version=version)
        finished += self._engine.step()
        self._busy += time.perf_counter() - began
        for row in finished:
            self._deliver(row)
        return True

    def _next(self) -> list[_Call]:
        """Take from the queue, in its order, the requests that fit; dropped ones are forgotten."""
        admitted: list[_Call] = []
        while self._waiting:
            call = self._waiting[0]
            if not call.row.dropped:
                if not self._engine.fits(call.row, among=[c.row for c in admitted]):
                    break
                admitted.append(call)
                self._calls[call.row] = call
            self._waiting.popleft()
        return admitted

    def _deliver(self, row: Row) -> None:
        call = self._calls.pop(row)
        assert row.stop is not None
        call.settle(
            Completion(
                token_ids=tuple(row.token_ids),
                logprobs=tuple(row.logprobs),
                stop=row.stop,
                policy_version=(row.version, self._version()),
                seconds=time.perf_counter() - call.began,
            )
        )

    def _drop(self, outcome: BaseException | None) -> None:
        """Give every caller `outcome` (None: cancelled) and stop; called with the lock held."""
        for call in (*self._calls.values(), *self._waiting):
            call.settle(outcome)
        self._calls.clear()
        self._waiting.clear()
        self._engine.clear()
        self._running = False
        self._idle.set()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """The model in evaluation mode (gradient checkpointing refuses a cache in training mode)."""
    training = model.training
    if training:
        model.eval()
    try:
        yield
    finally:
        if training:
            model.train()
