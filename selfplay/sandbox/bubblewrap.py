"""Sandboxes out of Linux namespaces, without a daemon: one bubblewrap process a command.

A sandbox is a *holder*: a process that only keeps a mount namespace open, in which two size-limited
tmpfs (the work tree and /tmp), the interpreter and the test tools are mounted. Each command enters that
mount namespace and starts bubblewrap there, with every namespace fresh (user namespace included), no
network, no capability, and a root made of `/usr`, the loader's links and those mounts; `/` and `/etc`
of the host are never bound, not even for the holder. Nothing lies on the host's file systems: when the engine
dies, however it dies, the holder dies, and the kernel frees the rest.

Started as root, the engine drops to the uid `namespaces.SANDBOX_UID` before bubblewrap runs, because root's
bubblewrap can read whatever root can.

Limits are rlimits, a process at a time (`limits="process"`). Not covered: total memory, CPU share,
a seccomp filter, and what `/usr` of the host holds for all to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from selfplay.errors import SelfplayError
from selfplay.sandbox import Left, PolicyUnsupported, Preflight, Sandbox, SandboxCapabilities, SandboxSpec
from selfplay.sandbox.environment import LOOK, PYTHON_INSIDE, TEST_TOOLS, Environment, tool_environment
from selfplay.sandbox.holder import BubblewrapSandbox
from selfplay.sandbox.namespaces import Marks, marks_of
from selfplay.sandbox.pool import Pool
from selfplay.sandbox.process import age_of
from selfplay.sandbox.recipe import Recipe, spec_of


class BubblewrapProvider:
    """Makes sandboxes out of namespaces; needs no daemon and no root."""

    name = "bubblewrap"
    capabilities = SandboxCapabilities(network_none=True, limits="process", isolated=True)
    python = PYTHON_INSIDE

    def __init__(self, *, environment: Environment | None = None) -> None:
        self._environment = environment
        self._live: dict[str, BubblewrapSandbox] = {}
        self.pool = Pool(self.create)

    async def create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        """A ready sandbox: holder up, archive unpacked.

        Raises:
            PolicyUnsupported: the spec asks for a network.
            SandboxInfraError: bubblewrap, a tool or the archive failed.
        """
        if spec.network != "none":
            raise PolicyUnsupported(
                "sandbox `bubblewrap` cannot give a network, and the spec asks for `public`",
                hint="use network = none, or the `docker` sandbox",
            )
        if self._environment is None:
            self._environment = await asyncio.to_thread(tool_environment)
        sandbox = BubblewrapSandbox(spec, environment=self._environment)
        self._live[sandbox.id] = sandbox
        sandbox.on_close = lambda: self._live.pop(sandbox.id, None)
        try:
            await sandbox.open()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A clean sandbox out of the pool, else one made now.

        Raises:
            PolicyUnsupported, SandboxInfraError: as `create`.
        """
        return await self.pool.acquire(spec)

    async def listed(self) -> tuple[Left, ...]:
        """Every sandbox of which a process is there, by the marks among its arguments."""
        found: dict[str, Left] = {}
        for pid, marks in _marked():
            age = max(age_of(pid), found[marks.id].age_seconds if marks.id in found else 0.0)
            labels = marks.labels or (found[marks.id].labels if marks.id in found else {})
            found[marks.id] = Left(
                id=marks.id,
                backend=self.name,
                owner=str(marks.owner),
                dead=marks.owner.dead(),
                state="running",
                age_seconds=age,
                labels=labels,
            )
        return tuple(found[key] for key in sorted(found))

    async def reap(self, *, older_than_seconds: float | None = None) -> tuple[str, ...]:
        """Kill what dead engines left: only processes that lost the parent-death signal while they were starting."""
        old = older_than_seconds if older_than_seconds is not None else 0.0
        dead = {left.id for left in await self.listed() if left.dead and left.age_seconds >= old}
        for pid, marks in _marked():
            # note: asked of each, because a candidate can write another sandbox's marks among its arguments.
            if marks.id in dead and marks.owner.dead():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        return tuple(sorted(dead))

    @classmethod
    async def preflight(cls, *, recipe: Recipe | None = None) -> Preflight:
        """Make a sandbox and look around in it: tools, interpreter, no capability, no host file, no network."""
        if sys.platform != "linux":
            return Preflight(ready=False, what=f"bubblewrap needs Linux; this is {sys.platform}", fix="use Docker")
        provider = cls(environment=tool_environment(recipe.tools if recipe is not None else TEST_TOOLS))
        try:
            sandbox = await provider.create(spec_of(recipe))
            result = await sandbox.exec([provider.python, "-I", "-c", LOOK], timeout_seconds=30.0)
        except SelfplayError as error:
            return Preflight(ready=False, what=error.message, fix=error.hint or fix_of(error.message))
        finally:
            await provider.aclose()
        if result.exit_code != 0:
            return Preflight(ready=False, what=f"a bubblewrap sandbox came up wrong: {result.stderr.strip()[-300:]}")
        return Preflight(ready=True, what=f"made a bubblewrap sandbox and looked around in it: {result.stdout.strip()}")

    async def aclose(self) -> None:
        """Close every sandbox made here, idle ones too."""
        await self.pool.aclose()
        for sandbox in list(self._live.values()):
            await sandbox.close()


def fix_of(message: str, *, root: Path = Path("/")) -> str:
    """What mends bubblewrap's complaint `message` on this machine, where that is known; `root` is for tests."""
    if "Unknown option" in message or "disable-userns" in message:
        return "install bubblewrap 0.8 or newer"
    if (root / ".dockerenv").exists() or (root / "run" / ".containerenv").exists():
        return (
            "this is a container, whose engine refuses namespaces: start it with --privileged, or with "
            "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined; or run selfplay outside of it"
        )
    for setting, bad, good in (
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "10000"),
    ):
        path = root.joinpath("proc", "sys", *setting.split("."))
        if path.exists() and path.read_text(encoding="utf-8").strip() == bad:
            return f"sudo sysctl -w {setting}={good}"
    return ""


def _marked() -> Iterator[tuple[int, Marks]]:
    """Each bubblewrap process of this machine that selfplay started."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            # note: processes end while they are looked at, and a candidate may have dressed up as one of ours.
            with contextlib.suppress(OSError, ValueError, IndexError):
                argv = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace").split("\0")
                marks = marks_of(argv)
                if marks is not None:
                    yield int(name), marks
