"""The `vllm` policy: vLLM's engines in processes that we start, watch and stop; token ids in, token ids out.

Each engine has a copy of the weights. `sample` compares the version that the engines have with the learner's; where
they differ it waits for the replies in flight, hands the weights over (`handover`) to all and compares the digest of
every tensor on both sides. So nobody calls for a synchronisation, and nobody can forget it: probe, warm-up, evaluation
and play sample from the learner's weights or not at all. What an engine computed for older weights is never used again.

With several engines (`Options.replicas`) the requests of one play go to the engine that answered its first one, which
still has the keys and values of what was said; a new play goes to the one that owes least.

An engine's process may end or get stuck: what it owed is asked of another, or of the next one, which is started
meanwhile; a few times (`Options.restarts`), and after that every caller gets the reason with the end of its standard
error. Replies that had ended are not touched.

Log-probabilities are those of softmax(logits / temperature), without truncation. A reply ends by the same rules as with
`local` (`engine.Row`), token by token, by the learner's own tokenizer. Seeds are given a request, yet what else is in
flight moves the last bits: not deterministic (guarantees A and B).

Where learner and engine share a card (`cards.shared`), full weights are offered where they are, in the card's memory;
else they go through the machine's. With `Options.sleep` an engine gives its card's memory back before each update
(`rest`), and wakes with the next weights.

Not here: one engine (`vllm_engine`); weights from one card to another by NCCL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from selfplay.errors import NotReady, RunFailed
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.policy.cards import shared
from selfplay.policy.child import Line, Patience
from selfplay.policy.engine import Row, refuse
from selfplay.policy.handover import Handover
from selfplay.policy.homes import Homes
from selfplay.policy.vllm_engine import Call, Engine, Lost
from selfplay.policy.vllm_setup import RANKS, SCRIPT, Options, environment, installed


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
        max_rows: most replies that an engine decodes together.
        threads: of all engines, on a CPU.
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
            "sleep": self._options.sleep,
        }
        self._threads = max(1, threads // self._options.replicas)
        self._engines = tuple(Engine(tokenizer, say=say) for _ in range(self._options.replicas))
        self._homes: Homes[Engine] = Homes(lambda engine: len(engine.calls))
        self._lost = 0
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Trains, does not share its weights, not deterministic."""
        return PolicyCapabilities(trains=True, shares_weights=False, deterministic=False, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def tokens(self) -> int:
        """Sampled since the start."""
        return sum(engine.tokens for engine in self._engines)

    @property
    def engines(self) -> Sequence[Engine]:
        """All of them, to be looked at."""
        return self._engines

    async def sample(self, request: Request) -> Completion:
        """Sample one reply, from the weights that the learner has now.

        `Completion.seconds` runs from this call to the reply, waiting included. Temperature 0 takes the likeliest
        token, with the log-probabilities of temperature 1.

        Raises:
            UserError: the prompt is empty, foreign to the vocabulary or longer than the context.
            NotReady: an engine does not start, or engines were lost too often.
            RunFailed: its weights are not the learner's, a log-probability is not finite, or the policy is closed.
            asyncio.CancelledError: the caller gave up, or the policy was closed meanwhile.
        """
        refuse(request, context=self._context, vocabulary=self._vocabulary)
        began = time.perf_counter()
        while True:
            engine, version = await self._ready(request.episode)
            call = Call(row=Row(request=request, context=self._context, version=version))
            try:
                await engine.play(call)
            except Lost:
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

    async def warm(self) -> None:
        """Have an engine that could answer now, with the learner's weights; raises what `sample` does."""
        await self._ready("")

    async def rest(self) -> None:
        """Before the learner works: engines that are to sleep do, once the replies in flight have ended."""
        if not self._options.sleep:
            return
        async with self._lock:
            # note: an adapter's base is not handed over again, so it is kept.
            level = 1 if self._handover.rank else 2
            naps = [engine.sleep(level=level) for engine in self._engines if engine.alive and engine.held is not None]
            for problem in await asyncio.gather(*naps, return_exceptions=True):
                if isinstance(problem, BaseException) and not isinstance(problem, Lost):
                    raise problem

    async def aclose(self) -> None:
        """Drop what is in flight (its callers are cancelled), end the engines, remove the weights; idempotent."""
        self._closed = True
        tasks = [engine.mending for engine in self._engines if engine.mending is not None]
        for task in tasks:
            task.cancel()
        for engine in self._engines:
            engine.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._lock:
            await asyncio.gather(*(engine.bury() for engine in self._engines))
            await asyncio.to_thread(self._handover.close)

    async def _ready(self, episode: str) -> tuple[Engine, int]:
        """An engine that has the learner's weights, and their version; nothing is awaited before it is asked."""
        while True:
            if self._closed:
                raise RunFailed("the policy is closed")
            self._mend()
            version = self._version()
            if able := [engine for engine in self._engines if engine.alive and engine.held == version]:
                return self._homes.of(episode, able), version
            if any(engine.alive for engine in self._engines):
                async with self._lock:
                    await self._renew()
            else:
                starts = [engine.mending for engine in self._engines if engine.mending is not None]
                await asyncio.wait(starts, return_when=asyncio.FIRST_COMPLETED)

    def _mend(self) -> None:
        """Begin to start what is not alive.

        Raises:
            NotReady, RunFailed: one could not be started, or was lost too often.
        """
        for number, engine in enumerate(self._engines):
            if engine.alive:
                continue
            if engine.mending is not None:
                if not engine.mending.done():
                    continue
                engine.mending.result()
            engine.mending = asyncio.create_task(self._bring_up(number, engine))

    async def _bring_up(self, number: int, engine: Engine) -> None:
        """Start the engine, again where it was lost, and give it the learner's weights.

        Raises:
            NotReady: vLLM is not there, the engine does not start, or engines were lost too often.
            RunFailed: it has other weights.
        """
        options = self._options
        why = await engine.bury()
        self._lost += bool(why)
        if self._lost > options.restarts:
            raise NotReady(
                f"vLLM's engine was lost {self._lost} times; the last time {why}",
                hint="what was recorded is kept, and the same command goes on; or sample in the learner's process: "
                "-s policy.backend=local",
            )
        found = await asyncio.to_thread(installed, options)
        which = f" ({number + 1} of {options.replicas})" if options.replicas > 1 else ""
        start = f"starting vLLM {found.version}{which}"
        self._say(f"vLLM's engine was lost{which}: {why}; starting another" if why else start)
        loop = asyncio.get_running_loop()
        model = await loop.run_in_executor(self._executor, self._handover.model, number)
        await engine.start(
            [found.python, "-P", str(SCRIPT)],
            {**self._start, "model": str(model), "shares": self._shares(number)},
            environment=environment(self._threads, card=options.card(number)),
            patience=Patience(start=options.start_seconds, stall=options.stall_seconds),
        )
        self._handover.started(number)
        async with self._lock:
            await self._renew()

    async def _renew(self) -> None:
        """Give the learner's weights to every engine that has others; under the lock.

        Raises:
            RunFailed: one was given others.
            NotReady: there is no room for them.
        """
        engines = [(n, e) for n, e in enumerate(self._engines) if e.alive and e.held != self._version()]
        if not engines:
            return
        await asyncio.gather(*(engine.drained() for _, engine in engines))
        near = [self._shares(number) for number, _ in engines]
        job = partial(self._handed_out, folder=not all(near), card=any(near))
        version, ways = await asyncio.get_running_loop().run_in_executor(self._executor, job)
        loads = [
            engine.load(*ways[is_near], version=version) for (_, engine), is_near in zip(engines, near, strict=True)
        ]
        found = await asyncio.gather(*loads, return_exceptions=True)
        self._handover.withdraw()
        for problem in found:
            if isinstance(problem, BaseException) and not isinstance(problem, Lost):
                raise problem

    def _shares(self, number: int) -> bool:
        """Is engine `number` on the learner's card?"""
        return self._handover.on_card and shared(self._options.card(number))

    def _handed_out(self, *, folder: bool, card: bool) -> tuple[int, dict[bool, tuple[Line, dict[str, str]]]]:
        """The version, and where the weights are with their digests: (False) in a folder, (True) on the card."""
        ways: dict[bool, tuple[Line, dict[str, str]]] = {}
        if folder:
            path, sent = self._handover.write()
            ways[False] = {"path": str(path), "adapter": self._handover.rank > 0}, sent
        if card:
            # note: where engines sleep nothing is learnt meanwhile; else an update may come before they have read.
            handles, sent = self._handover.offer(copied=not self._options.sleep)
            ways[True] = {"handles": handles}, sent
        return self._version(), ways
