"""Several policies as one: each role's requests go to its own.

For roles with an adapter each over one base: a sampler a role, over the same model and on the same thread (`sampler`).
Each has a whole cache of its own and keeps it while another one works, for a cache's limit is also that of one reply's
length; so the memory of all of them is what a run needs, and is counted (`learner.memory`). Whoever is not named is
served by the first.

Not here: the samplers (`local`), the adapters (`learner.lora`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from selfplay.policy import Completion, Policy, PolicyCapabilities, Request, Tokenizer


class ByRole:
    """Implements `Policy`."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        """`policies` are of one kind, at least one; they are closed with this one."""
        self._policies = dict(policies)
        self._first = next(iter(self._policies.values()))

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Those of each."""
        return self._first.capabilities

    @property
    def tokenizer(self) -> Tokenizer:
        """The one of all."""
        return self._first.tokenizer

    async def sample(self, request: Request) -> Completion:
        """One reply of the role's own policy; raises what that raises."""
        return await self._policies.get(request.role, self._first).sample(request)

    async def aclose(self) -> None:
        """Close all of them; idempotent."""
        await asyncio.gather(*(policy.aclose() for policy in self._policies.values()))


def sampler(
    model: Any,
    tokenizer: Tokenizer,
    *,
    roles: Sequence[str],
    speak_as: Callable[[Any, str], None],
    version: Callable[[], int],
    executor: Executor,
    max_rows: int,
) -> Policy:
    """The sampler `local` of `model`, or one a role where `roles` have adapters each, to which `speak_as` switches.

    The other arguments are `LocalPolicy`'s, and each sampler's: `max_rows` are those of one role.
    """
    from selfplay.policy.local import LocalPolicy

    make = partial(LocalPolicy, model, tokenizer, version=version, executor=executor, max_rows=max_rows)
    if not roles:
        return make()
    return ByRole({role: make(begin=partial(speak_as, model, role)) for role in roles})
