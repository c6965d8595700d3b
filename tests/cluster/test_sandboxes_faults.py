"""What becomes of sandbox actors that fail, with a stand-in for Ray; on a real cluster: test_sandboxes.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from selfplay.cluster import Nodes, Wanted, joining
from selfplay.cluster.node import SandboxNode
from selfplay.cluster.sandboxes import ClusterProvider
from selfplay.errors import NotReady
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from tests.cluster.engines_bench import until
from tests.cluster.ray_fake import FakeRay, behead, installed

ONE = Wanted(nodes=Nodes(sandboxes=1), ranks=1, threads=1)
SPEC = SandboxSpec(name="python")


@pytest.fixture(name="ray_fake")
def _ray_fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Two places."""
    fake = installed(monkeypatch, places=2)
    yield fake
    assert fake.living == [], "no actor is left"
    fake.head.close()


async def refused(node: SandboxNode) -> tuple[str, ...]:
    """What a node answers whose cache cannot be looked at."""
    raise PermissionError(13, "Permission denied", "/nowhere/selfplay")


def test_files_that_a_node_cannot_have_are_said_in_one_sentence(
    ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    async def main() -> None:
        provider = await ClusterProvider.open("local", ONE, say=said.append)
        monkeypatch.setattr(SandboxNode, "lacking", refused)
        ray_fake.kill(ray_fake.living[0])
        with pytest.raises(SandboxInfraError, match="sandbox actor 1 died"):
            await provider.create(SPEC)
        await until(lambda: len(said) == 2)
        await provider.aclose()
        with pytest.raises(NotReady, match=r"^sandbox actor 1: .*Permission denied: '/nowhere/selfplay'") as error:
            await ClusterProvider.open("local", ONE)
        assert error.value.hint

    asyncio.run(main())
    assert said[1].startswith("sandbox actor 1 could not be started again: sandbox actor 1: [Errno 13]"), said


def test_no_actor_is_ended_through_a_head_that_is_lost(ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        provider = await ClusterProvider.open("local", ONE)
        behead(ray_fake, monkeypatch)
        await until(lambda: joining.lost() is not None)
        await asyncio.sleep(0.1)
        with pytest.raises(NotReady, match="can no longer be reached"):
            await provider.create(SPEC)
        await provider.aclose()

    asyncio.run(main())
    assert ray_fake.killed == 0
    for actor in ray_fake.living:
        actor.dead.cancel()


def test_no_call_is_stopped_through_a_head_that_is_lost(ray_fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        provider = await ClusterProvider.open("local", ONE)
        sandbox = await provider.create(SPEC)
        running = asyncio.create_task(sandbox.exec(["sleep", "20"], timeout_seconds=30.0))
        await asyncio.sleep(0.5)
        behead(ray_fake, monkeypatch)
        with pytest.raises(NotReady, match="can no longer be reached"):
            await running
        await provider.aclose()

    asyncio.run(main())
    assert ray_fake.cancelled == 0
    for actor in ray_fake.living:
        actor.dead.cancel()
