"""A game as an agent loop of verl: its servers sample, the game plays and judges, its trainer learns.

verl's worker makes a loop for each row and awaits `run(sampling_params, **row)`, which answers with the ids of the
prompt and of all that follows, a mask that is 1 where the policy wrote, log-probabilities and a score. `loop_class`
makes such a class of a base class and an output class that the caller imports:

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
    Loop = register("selfplay")(loop_class(AgentLoopBase, AgentLoopOutput, play=play, tokenizer=tokenizer))

where `play(policy, row)` gives a trajectory and its verdict: `rollout.Player` or `rollout.talk` with that policy, and a
game's `judge`. A play that nobody could decide (a fault) raises, and verl tries or drops it: it has no score.

Covered by tests: this contract, with a base class of our own that has what verl's has. Not run here: verl itself.
Sources: verl-project/verl, `verl/experimental/agent_loop/agent_loop.py` (AgentLoopBase, AgentLoopOutput).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

from selfplay.errors import RunFailed
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.types import Stop, Trajectory, Verdict


class ServedPolicy:
    """A `policy.Policy` that asks verl's servers; one for each play, whose requests go to the same server."""

    def __init__(
        self, servers: Any, tokenizer: Tokenizer, *, sampling: Mapping[str, Any], max_context: int = 32_768
    ) -> None:
        """`servers` has verl's `generate`; `sampling` are its parameters, over which a request's own limits hold."""
        self._servers, self._tokenizer = servers, tokenizer
        self._sampling, self._context = dict(sampling), max_context
        self._id = uuid4().hex

    @property
    def capabilities(self) -> PolicyCapabilities:
        """What it samples may be learnt from; it cannot be had again."""
        return PolicyCapabilities(trains=True, shares_weights=False, deterministic=False, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The one that was given."""
        return self._tokenizer

    async def sample(self, request: Request) -> Completion:
        """One reply.

        Raises:
            RunFailed: the servers tell no log-probability for each id.
        """
        began = time.monotonic()
        most = min(request.sampling.max_tokens, self._context - len(request.prompt_ids))
        asked = {**self._sampling, "max_tokens": most, "logprobs": True}
        if request.sampling.stop:
            asked |= {"stop": list(request.sampling.stop), "include_stop_str_in_output": True}
        found = await self._servers.generate(
            request_id=self._id, prompt_ids=list(request.prompt_ids), sampling_params=asked
        )
        token_ids, logprobs = tuple(found.token_ids), tuple(found.log_probs or ())
        if len(token_ids) != len(logprobs):
            raise RunFailed(f"verl's server told {len(logprobs)} log-probabilities for {len(token_ids)} ids")
        cut = len(token_ids) >= most and token_ids[-1] not in self._tokenizer.eos_ids
        return Completion(
            token_ids=token_ids,
            logprobs=logprobs,
            stop=Stop.TOKENS if cut else Stop.DONE,
            policy_version=(0, 0),
            seconds=time.monotonic() - began,
        )

    async def aclose(self) -> None:
        """Nothing to free: the servers are verl's."""


Play = Callable[[ServedPolicy, Mapping[str, Any]], Awaitable[tuple[Trajectory, Verdict]]]
"""Plays one row of verl's batch."""


def fields_of(trajectory: Trajectory, verdict: Verdict) -> dict[str, Any]:
    """What verl's output holds of a play.

    Raises:
        RunFailed: nobody decided it, or it has no reply.
    """
    if verdict.reward is None:
        raise RunFailed(f"the play {trajectory.id} has no reward: {verdict.why}")
    prompt, *others = trajectory.turns
    if not any(turn.sampled for turn in others):
        raise RunFailed(f"the play {trajectory.id} has no reply")
    return {
        "prompt_ids": list(prompt.token_ids),
        "response_ids": [token for turn in others for token in turn.token_ids],
        "response_mask": [int(turn.sampled) for turn in others for _ in turn.token_ids],
        "response_logprobs": [
            logprob for turn in others for logprob in (turn.logprobs if turn.sampled else (0.0,) * len(turn.token_ids))
        ],
        "reward_score": verdict.reward,
        "num_turns": len(trajectory.turns),
        "metrics": {"generate_sequences": trajectory.seconds},
    }


def loop_class(base: Any, output: Any, *, play: Play, tokenizer: Tokenizer, max_context: int = 32_768) -> Any:
    """A subclass of verl's `base` that plays by `play` and answers with an `output`."""

    async def run(self: Any, sampling_params: Mapping[str, Any], **row: Any) -> Any:
        policy = ServedPolicy(self.server_manager, tokenizer, sampling=sampling_params, max_context=max_context)
        trajectory, verdict = await play(policy, row)
        return output(**fields_of(trajectory, verdict))

    return type("SelfplayAgentLoop", (base,), {"run": run, "__doc__": "One play of a game of selfplay."})
