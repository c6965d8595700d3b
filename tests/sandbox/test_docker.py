"""What the shared contract cannot say: engines that die, images that are missing, containers of others."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.docker import DockerProvider
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.hardening import OWNER
from selfplay.sandbox.image import build_image, connect, image_tag
from selfplay.sandbox.process import Owner
from selfplay.sandbox.recipe import load_recipe

pytestmark = pytest.mark.docker

ENGINE = """
import asyncio
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.docker import DockerProvider
async def main():
    provider = DockerProvider()
    sandboxes = await asyncio.gather(*(provider.create(SandboxSpec(name="python")) for _ in range(2)))
    print(*(sandbox.id for sandbox in sandboxes), flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture
def api(need: Callable[[str], None]) -> Iterator[Any]:
    need("docker")
    client = connect(timeout_seconds=30.0)
    yield client
    client.close()


def names(api: Any) -> set[str]:
    found = api.containers(all=True, filters={"label": OWNER})
    return {name.lstrip("/") for container in found for name in container["Names"]}


def with_docker(check: Callable[[DockerProvider], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        provider = DockerProvider(**settings)
        try:
            await check(provider)
        finally:
            await provider.aclose()

    asyncio.run(main())


def test_reaper_removes_the_dead_and_touches_nothing_else(api: Any) -> None:
    image = image_tag(load_recipe(), tool_environment())
    foreign = {
        "selfplay-test-foreign": {},
        "selfplay-test-live": {OWNER: str(Owner.here())},
        "selfplay-test-elsewhere": {OWNER: "elsewhere.invalid:1:1"},
    }
    for name, labels in foreign.items():
        api.create_container(image, ["sleep", "60"], name=name, labels=labels)
    try:
        with subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True) as engine:
            assert engine.stdout is not None
            ids = set(engine.stdout.readline().split())
            assert len(ids) == 2
            engine.send_signal(signal.SIGKILL)
        assert ids <= names(api)

        async def check(provider: DockerProvider) -> None:
            assert ids <= set(await provider.reap())

        with_docker(check)
        assert not ids & names(api)
        for name in foreign:
            assert api.inspect_container(name)["State"]["Status"] == "created"
    finally:
        for name in foreign:
            api.remove_container(name, force=True)


def test_refused_creation_leaves_nothing(api: Any) -> None:
    before = names(api)

    async def check(provider: DockerProvider) -> None:
        with pytest.raises(SandboxInfraError):
            await provider.create(SandboxSpec(name="python", memory_mb=1))
        with pytest.raises(SandboxInfraError):
            await provider.create(SandboxSpec(name="python", workdir="/proc/self"))

    with_docker(check)
    assert names(api) == before


def test_missing_image_names_the_command(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        with pytest.raises(SandboxInfraError) as caught:
            await provider.create(SandboxSpec(name="python"))
        assert "no image `selfplay-none:0`" in caught.value.message
        assert "doctor --fix" in caught.value.hint

    with_docker(check, image="selfplay-none:0")


def test_container_that_vanishes_is_the_machines_fault(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        command = asyncio.create_task(sandbox.exec(["sleep", "50"], timeout_seconds=60.0))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(api.remove_container, sandbox.id, force=True)
        with pytest.raises(SandboxInfraError):
            await command
        with pytest.raises(SandboxInfraError):
            await sandbox.exec(["true"], timeout_seconds=5.0)
        await sandbox.close()

    with_docker(check)


def test_cancelled_close_still_removes(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        closing = asyncio.create_task(sandbox.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await sandbox.close()
        with pytest.raises(docker.errors.NotFound):
            await asyncio.to_thread(api.inspect_container, sandbox.id)

    with_docker(check)


def test_image_is_named_by_its_content_and_built_once(api: Any, tmp_path: Path) -> None:
    said: list[str] = []
    tag = build_image(load_recipe(), say=said.append)
    assert said == [], "it is there already"
    shipped = load_recipe().folder
    (tmp_path / "python").mkdir()
    for name in ("sandbox.toml", "Dockerfile"):
        (tmp_path / "python" / name).write_text(f"# changed\n{(shipped / name).read_text()}", encoding="utf-8")
    assert image_tag(load_recipe(folder=tmp_path), tool_environment()) != tag
