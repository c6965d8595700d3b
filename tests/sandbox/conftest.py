"""Which backends these tests run against, and the switches that turn a missing one into a failure."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable

import pytest

from selfplay.sandbox import Preflight, SandboxProvider
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.select import preflight


@functools.cache
def _tried(name: str) -> Preflight:
    return preflight(name)


def needed(name: str) -> None:
    """Skip where the backend is not ready, or fail where `SELFPLAY_REQUIRE_NAME=1` says that it must be."""
    tried = _tried(name)
    if not tried.ready:
        sentence = f"{name} is not ready: {tried.what} ({tried.fix})"
        if os.environ.get(f"SELFPLAY_REQUIRE_{name.upper()}") == "1":
            pytest.fail(sentence)
        pytest.skip(sentence)


def make(name: str) -> SandboxProvider:
    """A provider of that name."""
    if name == "docker":
        from selfplay.sandbox.docker import DockerProvider

        return DockerProvider()
    return BubblewrapProvider() if name == "bubblewrap" else LocalProvider()


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
