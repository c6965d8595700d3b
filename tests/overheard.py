"""A policy in front of another one that remembers what it was asked; what is sampled is the other's."""

from __future__ import annotations

from dataclasses import dataclass, field

from selfplay.policy import Completion, Policy, PolicyCapabilities, Request, Tokenizer


@dataclass
class Overheard:
    """A policy that remembers what it was asked."""

    inner: Policy
    asked: list[Request] = field(default_factory=list)

    @property
    def capabilities(self) -> PolicyCapabilities:
        return self.inner.capabilities

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    async def sample(self, request: Request) -> Completion:
        self.asked.append(request)
        return await self.inner.sample(request)

    async def aclose(self) -> None:
        await self.inner.aclose()
