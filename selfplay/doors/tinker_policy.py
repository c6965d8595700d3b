"""The policy beside `tinker.TinkerLearner`: replies of its weights, sampled at the server.

Every reply is of one version of the weights, a copy that the server takes after each update. Not here: what happens
where the server fails (`tinker_client`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor

from selfplay.config import Config
from selfplay.doors.tinker import TinkerLearner
from selfplay.doors.tinker_client import CONTEXT, asked, given_of
from selfplay.errors import RunFailed
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer, engine
from selfplay.types import Stop

_IDS = 1 << 31
"""More than any vocabulary has: the server knows its own."""


def policy(config: Config, learner: TinkerLearner, tokenizer: Tokenizer, executor: Executor) -> TinkerPolicy:
    """The policy of a run beside its learner, on whose thread (`executor`) the server is handed new weights."""
    given = given_of(config)
    context = given.context or learner.service.context(given.model) or CONTEXT
    return TinkerPolicy(learner, tokenizer, executor=executor, max_context=context, max_rows=config.policy.max_rows)


class TinkerPolicy:
    """Implements `policy.Policy`: samples from the learner's weights, at the server.

    Args:
        learner: Whose weights.
        tokenizer: Of the base, here.
        executor: The learner's thread.
        max_context: Prompt and reply, in tokens.
        max_rows: Most requests in flight.
    """

    def __init__(
        self,
        learner: TinkerLearner,
        tokenizer: Tokenizer,
        *,
        executor: Executor,
        max_context: int,
        max_rows: int = 32,
    ) -> None:
        self._learner = learner
        self._tokenizer = tokenizer
        self._executor = executor
        self._context = max_context
        self._rows = asyncio.Semaphore(max_rows)

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Trains, does not share its weights, not deterministic."""
        return PolicyCapabilities(trains=True, shares_weights=False, deterministic=False, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The one that was given."""
        return self._tokenizer

    async def sample(self, request: Request) -> Completion:
        """One reply of the learner's weights, cut behind the first end of sequence or stop string.

        Raises:
            UserError: the prompt does not fit, or the server refuses the key or the request.
            NotReady: it failed, or did not answer in time.
            RunFailed: it gives no log-probabilities.
        """
        engine.refuse(request, context=self._context, vocabulary=_IDS)
        began = time.monotonic()
        service, room = self._learner.service, self._context - len(request.prompt_ids)
        async with self._rows:
            found = self._learner.sampling
            if found is None or found[0] != self._learner.policy_version:
                found = await asyncio.get_running_loop().run_in_executor(self._executor, self._learner.renew)
            version, client = found
            with service.told("sample"):
                async with asyncio.timeout(service.seconds):
                    answer = await asyncio.wrap_future(asked(service.sdk, client, request, room=room).future())
        (sequence,) = answer.sequences
        logprobs = sequence.logprobs
        if logprobs is None or not all(map(math.isfinite, logprobs)) or len(logprobs) != len(sequence.tokens):
            raise RunFailed(f"the Tinker server {service.url} gave a reply without a log-probability of each token")
        cut, ended = self._end(sequence.tokens, request.sampling.stop)
        stop = Stop.CONTEXT if cut >= room else Stop.TOKENS
        return Completion(
            token_ids=tuple(sequence.tokens[:cut]),
            logprobs=tuple(logprobs[:cut]),
            stop=Stop.DONE if ended or sequence.stop_reason == "stop" else stop,
            policy_version=(version, version),
            seconds=time.monotonic() - began,
        )

    async def aclose(self) -> None:
        """Nothing to free: the session is the learner's."""

    def _end(self, token_ids: Sequence[int], stops: Sequence[str]) -> tuple[int, bool]:
        """How many tokens count, and whether something ended them."""
        end = next((at for at, one in enumerate(token_ids, 1) if one in self._tokenizer.eos_ids), None)
        most = len(token_ids) if end is None else end
        if any(stop in self._tokenizer.decode(token_ids[:most]) for stop in stops):
            # note: servers differ in whether a list of strings leaves the end of sequence in force, and in what they
            # return of a string that ends in the middle of a token.
            for count in range(1, most + 1):
                if any(stop in self._tokenizer.decode(token_ids[:count]) for stop in stops):
                    return count, True
        return most, end is not None
