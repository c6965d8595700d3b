"""Which sandboxes tests run in, and the switches that turn a missing one into a failure."""

from __future__ import annotations

import functools
import os

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
