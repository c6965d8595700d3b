"""How tokens are sampled: one protocol, one file a backend.

`local` is our own KV-cache sampler, which shares the learner's weights in memory; `vllm` samples from a copy in an
engine's process; `openai` asks an endpoint; `scripted` replays given replies. A policy takes token ids and returns
token ids with their log-probabilities under the sampling temperature; it knows nothing of roles, games or the ledger.

Not here: rendering of prompts (`rollout`), weights (`learner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from selfplay.types import Sampling, Stop, record


@record
class Request:
    """What to sample: a prompt and the rules of one reply."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    """Keys every draw of this request; the reply does not depend on what else is in the batch."""
    episode: str = ""
    """Requests of one play have the same: a backend of several engines sends them to the one that knows the prefix."""
    role: str = ""
    """Name of the role that plays, for those whose roles have weights of their own."""


@record
class Completion:
    """One sampled reply."""

    token_ids: tuple[int, ...]
    """What was sampled, the end-of-sequence id or the stop string's tokens included."""
    logprobs: tuple[float, ...]
    """Natural log, one a token, under the sampling temperature; empty where the backend was not told them."""
    stop: Stop
    """DONE, TOKENS or CONTEXT."""
    policy_version: tuple[int, int]
    seconds: float


@record
class PolicyCapabilities:
    """What a backend can honour; a configuration that asks for more is refused at plan time."""

    trains: bool
    """Its samples may be learnt from: ids and log-probabilities are exact."""
    shares_weights: bool
    """Weights are shared with the learner in memory: nothing to synchronise, no staleness."""
    deterministic: bool
    """The same request gives the same tokens, whatever else is in flight (guarantee C)."""
    max_context: int
    """Prompt and reply, in tokens."""


class Tokenizer(Protocol):
    """Text to ids and back, by the model's own rules."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a reply."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of raw text; no special tokens are added and none inside the text are interpreted."""
        ...

    def encode_chat(self, user: str) -> tuple[int, ...]:
        """Ids of one user message in the model's chat template, ready for the reply.

        Raises:
            UserError: the tokenizer has no chat template.
        """
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of `token_ids` without special tokens; bytes that are no text become U+FFFD."""
        ...


class Policy(Protocol):
    """Token ids in, token ids and log-probabilities out."""

    @property
    def capabilities(self) -> PolicyCapabilities: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def sample(self, request: Request) -> Completion:
        """Sample one reply; many calls may be in flight, the backend batches them.

        Raises:
            UserError: the prompt does not fit the context.
            asyncio.CancelledError: the caller gave up; the row leaves the batch.
        """
        ...

    async def aclose(self) -> None:
        """Finish or drop what is in flight and free the backend; idempotent."""
        ...


@runtime_checkable
class Rests(Protocol):
    """A policy that gives memory back while the learner works."""

    async def rest(self) -> None:
        """Called before the learner works; the next request wakes it."""
        ...


@runtime_checkable
class Opens(Protocol):
    """A policy that takes hold of other machines."""

    async def open(self) -> None:
        """Called before the first step, so that what is missing is said before anything is spent; idempotent.

        Raises:
            NotReady: they are not there.
        """
        ...
