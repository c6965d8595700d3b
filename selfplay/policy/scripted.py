"""A policy that replies what it was told to: for tests and for trying a game without a model.

Replies come from a list, in the order of the calls, or from a function of the prompt's text. Their
log-probabilities are made up but fixed, so the policy cannot be trained on and says so.

Example:
    >>> import asyncio
    >>> from selfplay.policy import Request
    >>> from selfplay.policy.toy import CharTokenizer
    >>> from selfplay.types import Sampling
    >>> tokenizer = CharTokenizer()
    >>> policy = ScriptedPolicy(lambda prompt: prompt.upper().lower() + "!", tokenizer=tokenizer)
    >>> request = Request(prompt_ids=tokenizer.encode("ab"), sampling=Sampling(max_tokens=8), seed=0)
    >>> tokenizer.decode(asyncio.run(policy.sample(request)).token_ids)
    'ab!'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from selfplay.errors import RunFailed, UserError
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.types import Stop

LOGPROB = -1.0
"""The made-up log-probability of every token."""

Script = Sequence[str] | Callable[[str], str]
"""Replies in the order of the calls, or the reply to a prompt's text."""


class ScriptedPolicy:
    """Replies from `script`, cut by the request's own stop strings and limits."""

    def __init__(self, script: Script, *, tokenizer: Tokenizer, max_context: int = 8192) -> None:
        self._reply = script if callable(script) else None
        self._replies: Iterator[str] = iter(()) if callable(script) else iter(script)
        self._tokenizer = tokenizer
        self._context = max_context

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Deterministic where the calls come in a fixed order or the script is a function; never trains."""
        return PolicyCapabilities(
            trains=False,
            shares_weights=False,
            deterministic=self._reply is not None,
            max_context=self._context,
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """The one that replies are encoded with."""
        return self._tokenizer

    async def sample(self, request: Request) -> Completion:
        """The next reply, at once; it ends with the end-of-sequence id unless a rule of the request ends it before.

        Raises:
            UserError: the prompt does not fit the context.
            RunFailed: the list of replies is used up.
        """
        room = self._context - len(request.prompt_ids)
        if room <= 0:
            raise UserError(f"the prompt has {len(request.prompt_ids)} tokens, the context {self._context}")
        text = self._next(request)
        whole = (*self._tokenizer.encode(text), *sorted(self._tokenizer.eos_ids)[:1])
        token_ids, stop = self._cut(whole, request=request, room=room)
        return Completion(
            token_ids=token_ids,
            logprobs=(LOGPROB,) * len(token_ids),
            stop=stop,
            policy_version=(0, 0),
            seconds=0.0,
        )

    async def aclose(self) -> None:
        """Nothing to free."""

    def _next(self, request: Request) -> str:
        if self._reply is not None:
            return self._reply(self._tokenizer.decode(request.prompt_ids))
        try:
            return next(self._replies)
        except StopIteration:
            raise RunFailed("the script has no reply left", hint="give it as many replies as there are calls") from None

    def _cut(self, whole: tuple[int, ...], *, request: Request, room: int) -> tuple[tuple[int, ...], Stop]:
        sampling = request.sampling
        for count in range(1, len(whole) + 1):
            text = self._tokenizer.decode(whole[:count])
            if any(stop in text for stop in sampling.stop) or whole[count - 1] in self._tokenizer.eos_ids:
                return whole[:count], Stop.DONE
            if count == sampling.max_tokens:
                return whole[:count], Stop.TOKENS
            if count == room:
                return whole[:count], Stop.CONTEXT
        return whole, Stop.DONE
