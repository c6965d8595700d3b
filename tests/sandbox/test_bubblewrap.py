"""What the shared contract cannot say: engines that die, users that are not root."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider, preflight

pytestmark = pytest.mark.bubblewrap

ENGINE = """
import asyncio
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
async def main():
    provider = BubblewrapProvider()
    sandboxes = [await provider.create(SandboxSpec(name="python")) for _ in range(3)]
    print(*(sandbox.id for sandbox in sandboxes), flush=True)
    await sandboxes[0].exec(["sh", "-c", "setsid sleep 1000 & sleep 1000; :", sandboxes[0].id], timeout_seconds=1000)
asyncio.run(main())
"""


def running(words: list[str]) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word in argv for word in words):
            return True
    return False


def test_nothing_outlives_a_killed_engine(need: Callable[[str], None]) -> None:
    need("bubblewrap")
    with subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        ids = engine.stdout.readline().split()
        assert len(ids) == 3
        assert running(ids)
        engine.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while running(ids) and time.monotonic() < deadline:
        # One that was just starting may have missed the kernel's signal: that is the reaper's.
        asyncio.run(BubblewrapProvider().reap())
        time.sleep(0.02)
    assert not running(ids)


def test_reaper_spares_the_living(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def main() -> None:
        provider = BubblewrapProvider()
        try:
            sandbox = await provider.create(SandboxSpec(name="python"))
            assert await BubblewrapProvider().reap() == ()
            assert (await sandbox.exec(["true"], timeout_seconds=10.0)).exit_code == 0
        finally:
            await provider.aclose()

    asyncio.run(main())


def test_dead_holder_is_the_machines_fault(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def main() -> None:
        provider = BubblewrapProvider()
        try:
            sandbox = await provider.create(SandboxSpec(name="python"))
            command = asyncio.create_task(sandbox.exec(["sleep", "50"], timeout_seconds=60.0))
            await asyncio.sleep(0.3)
            for process in sandbox._running:
                os.killpg(process.pid, signal.SIGKILL)
            with pytest.raises(SandboxInfraError):
                await command
        finally:
            await provider.aclose()

    asyncio.run(main())


def test_failed_creation_leaves_nothing(need: Callable[[str], None], tmp_path: Path) -> None:
    need("bubblewrap")

    async def main() -> set[str]:
        provider = BubblewrapProvider()
        before = set(os.listdir("/proc/self/fd"))
        for archive in ("none.tar", "."):
            with pytest.raises(SandboxInfraError):
                await provider.create(SandboxSpec(name="python", archive=str(tmp_path / archive)))
        for _ in range(5):
            sandbox = await provider.create(SandboxSpec(name="python"))
            await sandbox.exec(["true"], timeout_seconds=10.0)
            await sandbox.close()
        return set(os.listdir("/proc/self/fd")) - before

    assert asyncio.run(main()) == set()


def test_missing_bubblewrap_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tried = asyncio.run(preflight())
    assert not tried.ready
    assert tried.fix.startswith("apt-get install -y bubblewrap")


def test_missing_test_tool_is_told() -> None:
    with pytest.raises(NotReady):
        asyncio.run(preflight(tools=["no-such-distribution"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_ordinary_user_gets_the_same(need: Callable[[str], None], tmp_path: Path) -> None:
    need("bubblewrap")
    python = shutil.which("python3", path="/usr/bin")
    if python is None or subprocess.run([python, "-c", "import sys; assert sys.version_info >= (3, 11)"]).returncode:
        pytest.skip("no system Python 3.11 that another user could run")
    # Everything another user must read, in a folder that another user can reach.
    shared = Path("/var/tmp") / f"selfplay-test-{os.getpid()}"
    shared.mkdir()
    try:
        repository = Path(__file__).parents[2]
        for name in ("selfplay", "sandboxes"):
            shutil.copytree(repository / name, shared / name, ignore=shutil.ignore_patterns("__pycache__"))
        from selfplay.sandbox.environment import tool_environment

        shutil.copytree(tool_environment().packages, shared / "packages")
        (shared / "cache").mkdir()
        os.chown(shared / "cache", 4242, 4242)
        script = textwrap.dedent("""
            import asyncio
            from selfplay.sandbox import conformance, bubblewrap
            async def main():
                provider = bubblewrap.BubblewrapProvider()
                for check in (conformance.odd_files_are_refused, conformance.archive_is_unpacked,
                              conformance.tests_are_run_and_reported, conformance.timeout_kills_children,
                              *conformance.ISOLATION):
                    await check(provider)
                await provider.aclose()
            asyncio.run(main())
        """)
        env = {"PYTHONPATH": f"{shared}:{shared}/packages", "SELFPLAY_CACHE": str(shared / "cache"), "HOME": "/"}
        user = ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups", "--"]
        done = subprocess.run(
            [*user, python, "-c", script],
            env={**env, "PATH": os.environ["PATH"]},
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(shared)
