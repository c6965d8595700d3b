"""One bubblewrap sandbox: its holder, the commands and served processes run in it, and its files.

Nothing of the candidate's is trusted: how a command ended is read off bubblewrap's own status pipe, and files are
reached through descriptors of the two folders, opened while the sandbox was clean.

Not covered: making and finding sandboxes (`bubblewrap`), the command lines (`namespaces`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from selfplay.sandbox import Difference, SandboxInfraError, SandboxSpec
from selfplay.sandbox.difference import compare, entries_of_folder
from selfplay.sandbox.environment import Environment
from selfplay.sandbox.files import read_file, write_files
from selfplay.sandbox.namespaces import (
    SANDBOX_UID,
    SCRATCH,
    TOOLS,
    WORK,
    enter_argv,
    holder_argv,
    inside_argv,
    tool,
)
from selfplay.sandbox.piped import Piped
from selfplay.sandbox.process import Ended, kill_group, open_archive, run_process, start_process
from selfplay.sandbox.status import Status, namespace_of
from selfplay.types import Result

READY_SECONDS = 20.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BubblewrapSandbox:
    """One holder, and the commands run in it."""

    def __init__(self, spec: SandboxSpec, *, environment: Environment) -> None:
        self.id = f"sp-{uuid.uuid4().hex[:16]}"
        self.on_close: Callable[[], object] = _nothing
        self._spec = spec
        self._environment = environment
        self._root = os.geteuid() == 0
        self._holder: subprocess.Popen[bytes] | None = None
        self._running: dict[subprocess.Popen[bytes], Status] = {}
        self._served: set[Piped] = set()
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
                holder = start_process(
                    argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={}, pass_fds=(write_end,)
                )
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
        self._check()
        status = Status()
        process: subprocess.Popen[bytes] | None = None

        def started(child: subprocess.Popen[bytes]) -> None:
            nonlocal process
            process = child
            self._running[child] = status
            status.started()

        try:
            ended = await run_process(
                [*self._enter(status), *command],
                timeout_seconds=timeout_seconds,
                output_limit=output_limit,
                stdin=stdin,
                env={},
                pass_fds=(status.write_end,),
                started=started,
            )
            own_end = status.told("exit-code")
        except OSError as error:
            raise SandboxInfraError(f"a command of sandbox {self.id} could not be started: {error}") from error
        finally:
            if process is not None:
                del self._running[process]
                status.end(self.id)
            status.close()
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} was closed while it ran a command")
        if own_end is None and not ended.timed_out:
            raise SandboxInfraError(f"bubblewrap ended with {ended.exit_code}: {ended.stderr.text()[-500:].strip()}")
        return ended

    def _enter(self, status: Status) -> list[str]:
        return enter_argv(self.id, mount_fd=self._fds["mnt"], user_fd=self._fds.get("user"), status_fd=status.write_end)

    def _check(self) -> None:
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")

    async def serve(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Piped:
        """Start `argv` in namespaces of its own and leave it running, for as long as the spec's time to live.

        Commands may run beside it; they share files with it and see none of its processes.

        Raises:
            SandboxInfraError: bubblewrap could not be started, or the sandbox is closed.
        """
        self._check()
        command = inside_argv(self._spec, argv, timeout_seconds=self._spec.ttl_seconds, cwd=cwd, env=env or {})
        status = Status()
        try:
            process = start_process(
                [*self._enter(status), *command],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                pass_fds=(status.write_end,),
            )
        except OSError as error:
            status.close()
            raise SandboxInfraError(f"sandbox {self.id} cannot serve: {error}") from error
        self._running[process] = status
        status.started()

        def fault() -> str:
            if self._closed or not self._stands():
                return f"sandbox {self.id} ended under its served process"
            return "" if status.told("exit-code") is not None else f"bubblewrap ended with {process.returncode}"

        def kill() -> None:
            kill_group(process)
            status.end(self.id)

        def ended(served: Piped) -> None:
            self._served.discard(served)
            self._running.pop(process, None)
            status.close()

        served = Piped(process, fault=fault, kill=kill, ended=ended)
        self._served.add(served)
        return served

    async def sweep(self) -> int:
        """Kill every process of every command and of what is served; how many of the candidate's there were."""
        self._check()
        first = {status.told("child-pid") for status in self._running.values()} - {None}
        members = [pid for one in first if one is not None for pid in namespace_of(one) if pid != one]
        for pid in first:
            if pid is not None:
                # note: the first process of a PID namespace takes all others with it, however fast they fork.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return len(members)

    async def alive(self) -> bool:
        """Is the holder there? What the candidate's processes do does not matter."""
        return not self._closed and self._stands()

    def _stands(self) -> bool:
        return self._holder is not None and self._holder.poll() is None

    async def diff(
        self, base: str | None = None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
    ) -> Difference:
        """Read the work tree through the descriptor that is open here, and compare it.

        Raises:
            SandboxInfraError: it cannot be read, or the sandbox is closed.
        """
        root = self._own_folder("work")
        against = base if base is not None else self._spec.archive

        def compared() -> Difference:
            try:
                return compare(entries_of_folder(root), against, allow=allow, max_bytes=max_bytes)
            finally:
                os.close(root)

        return await asyncio.to_thread(compared)

    def _own_folder(self, name: str) -> int:
        """A descriptor of one of the two folders, to be closed by the caller."""
        self._check()
        try:
            # note: the candidate owns it and may have taken its own right to enter, which would read as our fault.
            os.fchmod(self._fds[name], 0o755 if name == "work" else 0o1777)
            return os.open(".", _FOLDER, dir_fd=self._fds[name])
        except OSError as error:
            raise SandboxInfraError(f"a folder of sandbox {self.id} cannot be opened: {error}") from error

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
        root = self._own_folder("work")
        try:
            write_files(root, files, uid=SANDBOX_UID if self._root else None)
        except PermissionError:
            raise
        except OSError as error:
            raise SandboxInfraError(f"cannot write into sandbox {self.id}: {error}") from error
        finally:
            os.close(root)

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """One regular file of the work tree or of /tmp: nothing else there is the candidate's.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: a link, a device, a pipe, a folder, or outside of those two.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the sandbox is closed.
        """
        name, relative = "work", path
        for folder, of in ((self._spec.workdir, "work"), ("/tmp", "scratch")):
            if path.startswith(folder + "/"):
                name, relative = of, path[len(folder) + 1 :]
        root = self._own_folder(name)
        try:
            return read_file(root, relative, max_bytes=max_bytes)
        finally:
            os.close(root)

    async def close(self) -> None:
        """End the commands, what is served, and the holder. Goes on where the caller is cancelled."""
        if self._closed:
            return
        self._closed = True
        for process, status in list(self._running.items()):
            kill_group(process)
            status.end(self.id)
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
        # note: last, because it is the only point where this could be cancelled; each goes on by itself then.
        await asyncio.gather(*(served.close() for served in list(self._served)))


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


def _nothing() -> None:
    return None
