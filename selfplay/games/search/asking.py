"""Asks the policy itself, outside its plays: a question is read, judged, or answered without a corpus.

What is covered: `PolicyAsks`, which samples one reply to one user message, in the chat template where the role that it
stands for has one. The sampler's draw is keyed by the run's seed and the caller's key alone, so the same question is
answered the same way whenever it is asked under the same weights. Such replies are no trajectories: nothing learns from
them, and a verdict's evidence counts them.

The policy is made after the game; `build` binds it. Before that, and where a run has none (verdicts that are checked
again without a model), whoever asks is told so.

Not here: prompts and what a reply means (`rag`, `judge`).
"""

from __future__ import annotations

import time

from selfplay.errors import SelfplayError
from selfplay.games.search.records import AskFailed, Said
from selfplay.policy import Policy, Request
from selfplay.types import Role, Sampling, Stop, draw

TOKENS = 160
"""Sampled tokens of a reply: a quoted sentence and an answer."""
TEMPERATURE = 0.1
"""As the released SSP asks its judge."""


class PolicyAsks:
    """Implements `Asks` on the policy that plays."""

    def __init__(self, role: Role, *, max_tokens: int = TOKENS, temperature: float = TEMPERATURE) -> None:
        """`role` says how a message is written for the model: its `template`."""
        self._role = role
        self._sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        self._policy: Policy | None = None
        self._seed = 0

    def bind(self, policy: Policy, *, seed: int) -> None:
        """From now on `policy` is asked, under the run's seed."""
        self._policy, self._seed = policy, seed

    async def ask(self, prompt: str, *, key: str) -> Said:
        """See `Asks`.

        Raises:
            AskFailed: there is no policy, the prompt does not fit it, or it broke.
        """
        policy = self._policy
        if policy is None:
            raise AskFailed("no policy is there to be asked", hint="checks that ask one need a run's policy")
        tokenizer, began = policy.tokenizer, time.monotonic()
        try:
            chat = self._role.template == "chat"
            ids = tokenizer.encode_chat(prompt) if chat else tokenizer.encode(f"{prompt}\n")
            request = Request(prompt_ids=ids, sampling=self._sampling, seed=draw(self._seed, "ask", key))
            reply = await policy.sample(request)
        except (SelfplayError, TimeoutError, OSError) as error:
            raise AskFailed(f"the policy was asked in vain: {error}") from error
        if reply.stop is Stop.CONTEXT:
            raise AskFailed("the policy's reply did not fit its context", hint="less noise: -s game.options={noise=1}")
        text = tokenizer.decode(reply.token_ids)
        return Said(text=text, tokens=len(reply.token_ids), seconds=time.monotonic() - began)
