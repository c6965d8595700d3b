"""What is tried is stopped where something isolates, and is seen not to be where nothing does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay.sandbox import SandboxProvider
from selfplay.sandbox.proof import JUDGES, Attempt, prove


@pytest.mark.parametrize(
    "name",
    [pytest.param("docker", marks=pytest.mark.docker), pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)],
)
def test_everything_is_stopped_by_something(name: str, with_provider: Callable[..., None]) -> None:
    found: list[Attempt] = []

    async def check(provider: SandboxProvider) -> None:
        found.extend(await prove(provider))

    with_provider(name, check)
    assert [attempt.name for attempt in found] == list(JUDGES)
    assert [attempt for attempt in found if not attempt.stopped] == []
    said = {attempt.name: attempt.what for attempt in found}
    assert "no route" in said["network"]
    assert "(64)" in said["processes"]
    assert "128 MB" in said["memory"]


def test_what_is_not_stopped_is_told(with_provider: Callable[..., None]) -> None:
    found: list[Attempt] = []

    async def check(provider: SandboxProvider) -> None:
        found.extend(await prove(provider))

    with_provider("local", check)
    said = {attempt.name: attempt for attempt in found}
    assert not said["disk"].stopped
    assert said["disk"].what == "it wrote 64 MB into the work tree, whose size is 32 MB"
    assert said["file"].stopped


def test_an_attempt_without_an_answer_is_not_stopped(with_provider: Callable[..., None]) -> None:
    class Dumb:
        """A backend whose interpreter says nothing."""

        def __init__(self, provider: SandboxProvider) -> None:
            self.capabilities = provider.capabilities
            self.create = provider.create
            self.python = "true"

    async def check(provider: SandboxProvider) -> None:
        for attempt in await prove(Dumb(provider)):  # type: ignore[arg-type]
            assert (attempt.stopped, attempt.what) == (False, "the attempt ended without an answer: exit code 0")

    with_provider("local", check)
