"""Which backends these tests run against, and the switches that turn a missing one into a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from selfplay.sandbox import SandboxProvider
from tests.backends import make, needed


@pytest.fixture
def need() -> Callable[[str], None]:
    """`need("docker")`: skip, or fail where the switch is set, unless the backend is ready."""
    return needed


@pytest.fixture
def with_provider() -> Callable[..., None]:
    """`with_provider("docker", check)`: run an async check against a fresh provider, and close it."""

    def run(name: str, check: Callable[[SandboxProvider], object]) -> None:
        needed(name)

        async def main() -> None:
            provider = make(name)
            try:
                await check(provider)  # type: ignore[misc]
            finally:
                await provider.aclose()

        asyncio.run(main())

    return run
