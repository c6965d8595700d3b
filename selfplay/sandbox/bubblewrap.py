"""Sandboxes out of Linux namespaces, without a daemon: one bubblewrap process a command.

A sandbox is a *holder*: a process that only keeps a mount namespace open, in which two size-limited
tmpfs (the work tree and /tmp), the interpreter and the test tools are mounted. Each command enters that
mount namespace and starts bubblewrap there, with every namespace fresh (user namespace included), no
network, no capability, and a root made of `/usr`, the loader's links and those mounts; `/` and `/etc`
of the host are never bound. Nothing lies on the host's file systems: when the engine dies, however it
dies, the holder dies, and the kernel frees the rest.

Started as root, the engine drops to the uid `namespaces.SANDBOX_UID` before bubblewrap runs, because root's
bubblewrap can read whatever root can.

Limits are rlimits, a process at a time (`limits="process"`). Not covered: total memory, CPU share,
a seccomp filter, and what `/usr` of the host holds for all to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from selfplay.errors import SelfplayError
from selfplay.sandbox import PolicyUnsupported, Preflight, SandboxCapabilities, SandboxInfraError, SandboxSpec
from selfplay.sandbox.environment import LOOK, PYTHON_INSIDE, TEST_TOOLS, Environment, tool_environment
from selfplay.sandbox.files import read_file, write_files
from selfplay.sandbox.namespaces import (
    SANDBOX_UID,
    SCRATCH,
    TOOLS,
    WORK,
    enter_argv,
    exit_code_of,
    holder_argv,
    inside_argv,
    owner_of,
    tool,
)
from selfplay.sandbox.process import Ended, kill_group, open_archive, run_process
from selfplay.types import Result

READY_SECONDS = 20.0


class BubblewrapProvider:
    """Makes sandboxes out of namespaces; needs no daemon and no root."""

    name = "bubblewrap"
    capabilities = SandboxCapabilities(network_none=True, limits="process", isolated=True)
    python = PYTHON_INSIDE

    def __init__(self, *, environment: Environment | None = None) -> None:
        self._environment = environment
        self._live: dict[str, BubblewrapSandbox] = {}

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
        try:
            await sandbox.open()
        except BaseException:
            await self._forget(sandbox)
            raise
        sandbox.on_close = lambda: self._live.pop(sandbox.id, None)
        return sandbox

    async def _forget(self, sandbox: BubblewrapSandbox) -> None:
        self._live.pop(sandbox.id, None)
        await sandbox.close()

    async def reap(self) -> tuple[str, ...]:
        """Kill what dead engines left: only processes that lost the parent-death signal while they were starting."""
        return tuple(_reap())

    async def aclose(self) -> None:
        """Close every sandbox made here."""
        for sandbox in list(self._live.values()):
            await sandbox.close()


class BubblewrapSandbox:
    """One holder, and the commands run in it."""

    def __init__(self, spec: SandboxSpec, *, environment: Environment) -> None:
        self.id = f"sp-{uuid.uuid4().hex[:16]}"
        self.on_close: Callable[[], object] = _nothing
        self._spec = spec
        self._environment = environment
        self._root = os.geteuid() == 0
        self._holder: subprocess.Popen[bytes] | None = None
        self._running: set[subprocess.Popen[bytes]] = set()
        self._fds: dict[str, int] = {}
        self._closed = False

    async def open(self) -> None:
        """Start the holder, take hold of its namespaces and folders, unpack the archive.

        Raises:
            SandboxInfraError: some of that failed; `close` cleans up.
        """
        for name in TOOLS:
            tool(name)
        pid = await self._start_holder()
        try:
            self._fds["mnt"] = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            if not self._root:
                self._fds["user"] = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            for name, folder in (("work", WORK), ("scratch", SCRATCH)):
                self._fds[name] = os.open(f"/proc/{pid}/root{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                if self._root:
                    os.chown(self._fds[name], SANDBOX_UID, SANDBOX_UID)
        except OSError as error:
            raise SandboxInfraError(f"the sandbox's holder went away while it was opened: {error}") from error
        if self._spec.archive is not None:
            await self._unpack(self._spec.archive)

    async def _start_holder(self) -> int:
        """The process whose mount namespace is the sandbox's."""
        read_end, write_end = os.pipe()
        try:
            try:
                argv = holder_argv(
                    self._spec,
                    sandbox_id=self.id,
                    environment=self._environment.path,
                    root=self._root,
                    info_fd=write_end,
                )
                holder = _spawn(argv, write_end)
            finally:
                os.close(write_end)
            self._holder = holder
            # The holder is `cat`: it answers once everything is mounted, and ends when this process does.
            if not await _answers(holder):
                kill_group(holder)
                assert holder.stderr is not None
                told = holder.stderr.read().decode(errors="replace").strip()
                raise SandboxInfraError(f"bubblewrap could not make a sandbox: {told or 'no answer in time'}")
            return int(json.loads(os.read(read_end, 1 << 16))["child-pid"])
        except (OSError, ValueError, KeyError) as error:
            raise SandboxInfraError(f"bubblewrap could not be started: {error}") from error
        finally:
            os.close(read_end)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        output_limit: int = 1 << 20,
    ) -> Result:
        """Run `argv` in namespaces of its own; whatever it started ends with it.

        Raises:
            SandboxInfraError: bubblewrap failed, or the sandbox is closed.
        """
        command = inside_argv(self._spec, argv, timeout_seconds=timeout_seconds, cwd=cwd, env=env or {})
        ended = await self._run(command, timeout_seconds=timeout_seconds, stdin=stdin, output_limit=output_limit)
        return ended.result()

    async def _run(
        self, command: list[str], *, timeout_seconds: float, stdin: bytes | IO[bytes] | None, output_limit: int
    ) -> Ended:
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        enter = enter_argv(self.id, mount_fd=self._fds["mnt"], user_fd=self._fds.get("user"), status_fd=write_end)
        process: subprocess.Popen[bytes] | None = None
        own_end: int | None = None

        def started(child: subprocess.Popen[bytes]) -> None:
            nonlocal process
            process = child
            os.close(write_end)
            self._running.add(child)

        try:
            ended = await run_process(
                [*enter, *command],
                timeout_seconds=timeout_seconds,
                output_limit=output_limit,
                stdin=stdin,
                env={},
                pass_fds=(write_end,),
                started=started,
            )
            with contextlib.suppress(BlockingIOError):
                own_end = exit_code_of(os.read(read_end, 1 << 16))
        except OSError as error:
            raise SandboxInfraError(f"a command of sandbox {self.id} could not be started: {error}") from error
        finally:
            os.close(read_end)
            if process is None:
                os.close(write_end)
            else:
                self._running.discard(process)
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} was closed while it ran a command")
        if own_end is None and not ended.timed_out:
            raise SandboxInfraError(f"bubblewrap ended with {ended.exit_code}: {ended.stderr.text()[-500:].strip()}")
        return ended

    async def _unpack(self, archive: str) -> None:
        # note: inside, so that no name in the archive can reach the host.
        argv = ["tar", "--extract", "--file=-", "--no-same-owner", "--no-same-permissions"]
        command = inside_argv(self._spec, argv, timeout_seconds=READY_SECONDS, cwd=None, env={})
        with open_archive(archive) as file:
            ended = await self._run(command, timeout_seconds=READY_SECONDS, stdin=file, output_limit=4096)
        if ended.exit_code != 0 or ended.timed_out:
            raise SandboxInfraError(f"cannot unpack {archive}: {ended.stderr.text().strip()[-500:]}")

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files below the work tree.

        Raises:
            PermissionError: a path climbs or goes through a link.
            SandboxInfraError: the sandbox is closed, or its file system refuses.
        """
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        try:
            write_files(self._fds["work"], files, uid=SANDBOX_UID if self._root else None)
        except PermissionError:
            raise
        except OSError as error:
            raise SandboxInfraError(f"cannot write into sandbox {self.id}: {error}") from error

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """One regular file of the work tree or of /tmp: nothing else there is the candidate's.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: a link, a device, a pipe, a folder, or outside of those two.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the sandbox is closed.
        """
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        for folder, name in ((self._spec.workdir, "work"), ("/tmp", "scratch")):
            if path.startswith(folder + "/"):
                return read_file(self._fds[name], path[len(folder) + 1 :], max_bytes=max_bytes)
        return read_file(self._fds["work"], path, max_bytes=max_bytes)

    async def close(self) -> None:
        """End the commands and the holder. Without a point where it could be cancelled."""
        if self._closed:
            return
        self._closed = True
        for process in list(self._running):
            kill_group(process)
        while self._fds:
            os.close(self._fds.popitem()[1])
        if self._holder is not None:
            kill_group(self._holder)
            self._holder.wait()
            for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self.on_close()


async def preflight(*, tools: Sequence[str] = TEST_TOOLS) -> Preflight:
    """Make a sandbox and look around in it: tools, interpreter, no capability, no host file, no network."""
    if sys.platform != "linux":
        return Preflight(ready=False, what=f"bubblewrap needs Linux; this is {sys.platform}", fix="use Docker")
    provider = BubblewrapProvider(environment=tool_environment(tools))
    try:
        sandbox = await provider.create(SandboxSpec(name="python"))
        result = await sandbox.exec([provider.python, "-I", "-c", LOOK], timeout_seconds=30.0)
    except SelfplayError as error:
        return Preflight(ready=False, what=error.message, fix=error.hint or _fix(error.message))
    finally:
        await provider.aclose()
    if result.exit_code != 0:
        return Preflight(ready=False, what=f"a bubblewrap sandbox came up wrong: {result.stderr.strip()[-300:]}")
    return Preflight(ready=True, what=f"made a bubblewrap sandbox and looked around in it: {result.stdout.strip()}")


def _fix(message: str) -> str:
    """The command that mends what `message` complains about, where one is known."""
    if "Unknown option" in message or "disable-userns" in message:
        return "install bubblewrap 0.8 or newer"
    for setting, bad, good in (
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "10000"),
    ):
        path = Path("/proc/sys", *setting.split("."))
        if path.exists() and path.read_text(encoding="utf-8").strip() == bad:
            return f"sysctl -w {setting}={good}"
    if os.path.exists("/.dockerenv"):
        return "inside a container namespaces are refused: start it with --privileged, or use a virtual machine"
    return ""


def _spawn(argv: list[str], info_fd: int) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, env={}, pass_fds=(info_fd,), start_new_session=True
    )


async def _answers(holder: subprocess.Popen[bytes]) -> bool:
    """Does `cat` give back what it is given?"""
    assert holder.stdin is not None
    assert holder.stdout is not None
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    fd = holder.stdout.fileno()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(os.read(fd, 16)))
    try:
        with contextlib.suppress(BrokenPipeError):
            holder.stdin.write(b"ready")
            holder.stdin.flush()
        async with asyncio.timeout(READY_SECONDS):
            return bool(await ready == b"ready")
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)


def _reap() -> list[str]:
    """Ids of the sandboxes whose engine is dead and of which a process was still there."""
    reaped = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found = owner_of(argv)
        if found is not None and found[0].dead():
            with contextlib.suppress(OSError):
                os.kill(int(entry.name), signal.SIGKILL)
                reaped.append(found[1])
    return sorted(set(reaped))


def _nothing() -> None:
    return None
