"""What the shared contract cannot say: engines that die, users that are not root."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.sandbox import SandboxInfraError, SandboxSpec, Served
from selfplay.sandbox.bubblewrap import BubblewrapProvider, fix_of
from selfplay.sandbox.holder import BubblewrapSandbox
from selfplay.sandbox.process import Owner, run_process
from selfplay.sandbox.recipe import load_recipe

pytestmark = pytest.mark.bubblewrap

ENGINE = """
import asyncio
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
async def main():
    provider = BubblewrapProvider()
    await provider.acquire(SandboxSpec(name="python"))
    sandboxes = [await provider.create(SandboxSpec(name="python")) for _ in range(20)]
    served = await sandboxes[1].serve(["sh", "-c", "setsid sleep 1000 & exec cat", sandboxes[1].id])
    await served.ask(b"on", timeout_seconds=60)
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
        assert len(ids) == 20
        assert running(ids)
        engine.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while running(ids) and time.monotonic() < deadline:
        # One that was just starting may have missed the kernel's signal: that is the reaper's.
        asyncio.run(BubblewrapProvider().reap())
        time.sleep(0.02)
    assert not running(ids)


def with_sandbox(check: Callable[[BubblewrapProvider, BubblewrapSandbox], Awaitable[None]], **spec: object) -> None:
    async def main() -> None:
        provider = BubblewrapProvider()
        try:
            await check(provider, await provider.create(SandboxSpec(name="python", **spec)))  # type: ignore[arg-type]
        finally:
            await provider.aclose()

    asyncio.run(main())


async def asked_until_lost(served: Served) -> None:
    """The command inside dies a moment after its wrapper, and may answer until then."""
    while True:
        await served.ask(b"on", timeout_seconds=20.0)


def test_holder_has_no_more_of_the_host_than_it_needs(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def check(_: BubblewrapProvider, sandbox: BubblewrapSandbox) -> None:
        command = ["nsenter", f"--mount=/proc/{os.getpid()}/fd/{sandbox._fds['mnt']}", "ls", "/", "/etc"]
        if "user" in sandbox._fds:
            command[1:1] = [f"--user=/proc/{os.getpid()}/fd/{sandbox._fds['user']}", "--preserve-credentials"]
        seen = (await run_process(command, timeout_seconds=20.0)).stdout.text()
        words = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "ld.so.cache"}
        assert {"usr", "tmp"} <= set(seen.split()) - {"/:", "/etc:"} <= words

    with_sandbox(check)


def test_sandbox_outlives_the_thread_that_made_it(need: Callable[[str], None]) -> None:
    need("bubblewrap")
    provider = BubblewrapProvider()
    made: list[BubblewrapSandbox] = []

    def work() -> None:
        made.append(asyncio.run(provider.create(SandboxSpec(name="python"))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    time.sleep(0.2)

    async def main() -> None:
        assert await made[0].alive()
        assert (await made[0].exec(["echo", "on"], timeout_seconds=20.0)).stdout == "on\n"
        await provider.aclose()

    asyncio.run(main())


def test_dead_holder_is_known_and_no_candidates_fault(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def check(_: BubblewrapProvider, sandbox: BubblewrapSandbox) -> None:
        served = await sandbox.serve(["cat"])
        assert await served.ask(b"on", timeout_seconds=20.0) == b"on"
        assert sandbox._holder is not None
        os.killpg(sandbox._holder.pid, signal.SIGKILL)
        sandbox._holder.wait()
        assert not await sandbox.alive()
        for process in sandbox._running:
            os.killpg(process.pid, signal.SIGKILL)
        with pytest.raises(SandboxInfraError):
            await asked_until_lost(served)

    with_sandbox(check)


def test_wrapper_that_is_killed_from_outside_is_no_candidates_fault(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def check(_: BubblewrapProvider, sandbox: BubblewrapSandbox) -> None:
        served = await sandbox.serve(["cat"])
        assert await served.ask(b"on", timeout_seconds=20.0) == b"on"
        for process in sandbox._running:
            os.killpg(process.pid, signal.SIGKILL)
        with pytest.raises(SandboxInfraError, match="bubblewrap ended"):
            await asked_until_lost(served)
        assert (await sandbox.exec(["true"], timeout_seconds=20.0)).exit_code == 0

    with_sandbox(check)


def test_sweep_counts_what_it_kills(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def check(_: BubblewrapProvider, sandbox: BubblewrapSandbox) -> None:
        served = await sandbox.serve(["sh", "-c", "for i in 1 2 3; do setsid sleep 100 & done; exec cat"])
        assert await served.ask(b"on", timeout_seconds=20.0) == b"on"
        running = asyncio.create_task(sandbox.exec(["sleep", "100"], timeout_seconds=60.0))
        await asyncio.sleep(0.5)
        # Three daemons, `cat`, `sleep`, and a `timeout` above each command.
        assert await sandbox.sweep() >= 5
        result = await running
        assert (result.exit_code, result.timed_out) == (137, False), "swept, which is no fault of the machine"
        await served.close()

    with_sandbox(check)


def test_forged_marks_get_nobody_else_killed(need: Callable[[str], None]) -> None:
    need("bubblewrap")

    async def check(provider: BubblewrapProvider, sandbox: BubblewrapSandbox) -> None:
        here = Owner.here()
        dead = Owner(host=here.host, pid=here.pid, started=here.started + 1)
        marks = ["SELFPLAY_OWNER", str(dead), "SELFPLAY_SANDBOX", sandbox.id]
        code = "import os, sys; os.execv('/bin/sh', ['bwrap', '-c', 'sleep 50; :', *sys.argv[1:]])"
        forged = asyncio.create_task(sandbox.exec([provider.python, "-I", "-c", code, *marks], timeout_seconds=60.0))
        for _ in range(500):
            if any(left.dead for left in await provider.listed() if left.id == sandbox.id):
                break
            await asyncio.sleep(0.01)
        assert sandbox.id not in await provider.reap(older_than_seconds=3600.0)
        await provider.reap()
        assert (await asyncio.wait_for(forged, 20.0)).exit_code == 137
        assert await sandbox.alive()
        assert (await sandbox.exec(["true"], timeout_seconds=20.0)).exit_code == 0

    with_sandbox(check)


def test_what_mends_it_is_named(tmp_path: Path) -> None:
    def setting(name: str, value: str) -> None:
        path = tmp_path / "proc" / "sys" / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n", encoding="utf-8")

    refused = "bwrap: setting up uid map: Permission denied"
    assert fix_of(refused, root=tmp_path) == ""
    assert "0.8" in fix_of("bwrap: Unknown option --disable-userns", root=tmp_path)
    setting("kernel.apparmor_restrict_unprivileged_userns", "1")
    assert fix_of(refused, root=tmp_path) == "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    setting("kernel.apparmor_restrict_unprivileged_userns", "0")
    setting("user.max_user_namespaces", "0")
    assert fix_of(refused, root=tmp_path) == "sudo sysctl -w user.max_user_namespaces=10000"
    (tmp_path / ".dockerenv").touch()
    assert "--privileged" in fix_of(refused, root=tmp_path)


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
    tried = asyncio.run(BubblewrapProvider.preflight())
    assert not tried.ready
    assert tried.fix.startswith("apt-get install -y bubblewrap")


def test_missing_test_tool_is_told() -> None:
    with pytest.raises(NotReady):
        asyncio.run(BubblewrapProvider.preflight(recipe=replace(load_recipe(), tools=("no-such-distribution",))))


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
                              *conformance.LIFECYCLE, *conformance.ISOLATION):
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
