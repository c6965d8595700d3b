"""What the shared contract cannot say: engines that die, images that are missing, containers of others."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from selfplay.sandbox import ChannelLost, SandboxInfraError, SandboxSpec, channel
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


def names(api: Any, *, owner: str = str(Owner.here())) -> set[str]:
    """The containers of this process, or of another; other runs may be at work beside this one."""
    found = api.containers(all=True, filters={"label": f"{OWNER}={owner}" if owner else OWNER})
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
        assert ids <= names(api, owner="")

        async def check(provider: DockerProvider) -> None:
            assert ids <= set(await provider.reap())

        with_docker(check)
        assert not ids & names(api, owner="")
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


def test_candidate_that_kills_or_stops_the_agent_did_it_itself(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SLACK_SECONDS", 1.0)

    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        killed = await sandbox.exec(["sh", "-c", "setsid sleep 100 & kill -9 $PPID; sleep 100"], timeout_seconds=50.0)
        assert (killed.exit_code, killed.timed_out) == (137, False), killed
        stopped = await sandbox.exec(["sh", "-c", "kill -STOP $PPID; sleep 100"], timeout_seconds=0.5)
        assert (stopped.exit_code, stopped.timed_out) == (None, True), stopped
        count = await sandbox.exec(["sh", "-c", "grep -l sleep /proc/[0-9]*/comm | wc -l"], timeout_seconds=20.0)
        assert count.stdout == "1\n", "the keeper's, and nothing else"
        assert await sandbox.alive()

    with_docker(check)


def test_agent_cannot_be_read(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        script = "for f in fd environ mem maps; do ls /proc/$PPID/$f/ || cat /proc/$PPID/$f; done 2>/dev/null; exit 0"
        assert (await sandbox.exec(["sh", "-c", script], timeout_seconds=20.0)).stdout == ""

    with_docker(check)


def test_candidate_that_cannot_be_ended_has_spent_the_sandbox(api: Any) -> None:
    script = """
import os
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            os.kill(-1, 9)
os._exit(0)
"""

    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        result = await sandbox.exec([provider.python, "-I", "-c", script], timeout_seconds=20.0)
        if await sandbox.alive():
            return  # They ended each other before the sweep came; the first may have been quick enough to end well.
        assert result.exit_code == 137, result
        assert (await sandbox.exec(["true"], timeout_seconds=5.0)).exit_code == 137
        with pytest.raises(PermissionError):
            await sandbox.get("a", max_bytes=10)
        found = await sandbox.diff()
        assert (found.patch, set(found.dropped)) == (b"", {"."})

    with_docker(check)


def test_cancelled_command_leaves_a_usable_sandbox(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        running = asyncio.create_task(sandbox.exec(["sleep", "100"], timeout_seconds=200.0))
        await asyncio.sleep(0.3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await sandbox.exec(["sh", "-c", "echo on"], timeout_seconds=20.0)).stdout == "on\n"

    with_docker(check)


def test_served_process_answers_and_is_lost(api: Any) -> None:
    script = "while read line; do [ $line = end ] && exit; echo got $line; done"

    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python"))
        served = await sandbox.serve(["sh", "-c", script])
        assert await served.ask(b"one", timeout_seconds=20.0) == b"got one"
        await sandbox.put({"a": b"x"})
        assert await sandbox.get("a", max_bytes=1) == b"x"
        with pytest.raises(SandboxInfraError, match="serves a process"):
            await sandbox.exec(["true"], timeout_seconds=5.0)
        with pytest.raises(ChannelLost):
            await served.ask(b"end", timeout_seconds=20.0)
        await served.close()
        served = await sandbox.serve(["sh", "-c", "kill -9 -1; sleep 100"])
        with pytest.raises(ChannelLost, match="no answer"):
            await served.ask(b"x", timeout_seconds=0.5)
        await served.close()
        assert (await sandbox.exec(["sh", "-c", "echo on"], timeout_seconds=20.0)).stdout == "on\n"
        served = await sandbox.serve(["cat"])
        await asyncio.to_thread(api.remove_container, sandbox.id, force=True)
        with pytest.raises(SandboxInfraError):
            await served.ask(b"x", timeout_seconds=20.0)

    with_docker(check)


def test_difference_is_told_from_outside(api: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("X = 1\n")
    with tarfile.open(tmp_path / "tree.tar", "w") as tar:
        tar.add(tmp_path / "a.py", arcname="a.py")

    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SandboxSpec(name="python", archive=str(tmp_path / "tree.tar")))
        assert (await sandbox.diff()).patch == b""
        script = (
            "echo 'X = 2' > a.py; echo no > b.txt; ln -s /etc/passwd link.py; chmod 0 a.py; truncate -s 60M hole.py"
        )
        await sandbox.exec(["sh", "-c", script], timeout_seconds=20.0)
        found = await sandbox.diff(allow=("*.py",))
        assert found.changed == ("a.py",), found
        assert b"+X = 2" in found.patch
        assert set(found.dropped) == {"b.txt", "link.py", "hole.py"}

    with_docker(check)


def test_pool_hands_out_clean_sandboxes_and_lists_them(api: Any) -> None:
    async def check(provider: DockerProvider) -> None:
        spec = SandboxSpec(name="python", labels={"run": "r1"})
        one, other = await provider.acquire(spec), await provider.acquire(spec)
        assert one.id != other.id
        lefts = {left.id: left for left in await provider.listed()}
        assert not lefts[one.id].dead
        assert (lefts[one.id].state, dict(lefts[one.id].labels)) == ("running", {"run": "r1"})
        await one.close()
        assert not await one.alive()
        assert await other.alive()

    before = names(api)
    with_docker(check)
    assert names(api) == before


def test_cancelled_creation_leaves_nothing(api: Any) -> None:
    before = names(api)

    async def check(provider: DockerProvider) -> None:
        for delay in (0.0, 0.02, 0.1):
            making = asyncio.create_task(provider.create(SandboxSpec(name="python")))
            await asyncio.sleep(delay)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    with_docker(check)
    assert names(api) == before


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
