"""UNSAFE: runs commands as you, on this host, in a temporary folder. For code that you trust.

Covered: a clean environment, a folder of its own, rlimits, a deadline, death of what it started (also of
what left the process group, as long as it kept its environment), and sweeping what dead engines left.

Not covered: isolation. A command reads and writes whatever you can, and has the network; a spec that asks
for none is accepted, because the person chose this backend by name and `WARNING` was shown.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from selfplay.sandbox import Preflight, SandboxCapabilities, SandboxInfraError, SandboxSpec
from selfplay.sandbox.environment import TEST_TOOLS, Environment, tool_environment
from selfplay.sandbox.files import read_file, write_files
from selfplay.sandbox.process import Owner, limit_argv, open_archive, orphan_argv, run_process
from selfplay.types import Result

WARNING = (
    "UNSAFE: sandbox `local` isolates nothing. Code that the model writes runs as you, on this machine, "
    "with your files and your network."
)
_UNPACK_SECONDS = 60.0


class LocalProvider:
    """Makes folders, not sandboxes."""

    name = "local"
    capabilities = SandboxCapabilities(network_none=False, limits="process", isolated=False)

    def __init__(self, *, environment: Environment | None = None, folder: Path | None = None) -> None:
        self._environment = environment if environment is not None else tool_environment()
        self._folder = folder if folder is not None else Path(tempfile.gettempdir()) / f"selfplay-local-{os.getuid()}"
        self._live: dict[str, LocalSandbox] = {}

    @property
    def python(self) -> str:
        """The test environment's interpreter, on the host."""
        return self._environment.python

    async def create(self, spec: SandboxSpec) -> LocalSandbox:
        """A folder with the archive unpacked.

        Raises:
            SandboxInfraError: it could not be made.
        """
        sandbox = LocalSandbox(spec, parent=self._folder, python=self.python)
        self._live[sandbox.id] = sandbox
        sandbox.on_close = lambda: self._live.pop(sandbox.id, None)
        try:
            await sandbox.open()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def reap(self) -> tuple[str, ...]:
        """Remove the folders, and end the processes, of dead engines."""
        reaped = []
        for folder in sorted(self._folder.glob("sp-*")):
            try:
                owner = Owner.parse((folder / "owner").read_text(encoding="utf-8"))
            except OSError:
                continue
            if owner is not None and owner.dead():
                sweep(f"SELFPLAY_SANDBOX={folder.name}")
                shutil.rmtree(folder, ignore_errors=True)
                reaped.append(folder.name)
        return tuple(reaped)

    async def aclose(self) -> None:
        """Close every sandbox made here."""
        for sandbox in list(self._live.values()):
            await sandbox.close()


class LocalSandbox:
    """One folder: `work/` stands for the spec's work tree, `tmp/` for /tmp."""

    def __init__(self, spec: SandboxSpec, *, parent: Path, python: str) -> None:
        self.id = f"sp-{uuid.uuid4().hex[:16]}"
        self.on_close: Callable[[], object] = lambda: None
        self._spec = spec
        self._folder = parent / self.id
        self._path = f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin"
        self._closed = False

    async def open(self) -> None:
        """Make the folder and unpack the archive.

        Raises:
            SandboxInfraError: that failed.
        """
        try:
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700)
            (self._folder / "owner").write_text(str(Owner.here()), encoding="utf-8")
            self._work.mkdir()
            self._tmp.mkdir()
        except OSError as error:
            raise SandboxInfraError(f"cannot make the folder {self._folder}: {error}") from error
        if self._spec.archive is not None:
            argv = ["tar", "--extract", "--file=-", "--no-same-owner"]
            with open_archive(self._spec.archive) as file:
                ended = await run_process(argv, timeout_seconds=_UNPACK_SECONDS, stdin=file, cwd=str(self._work))
            if ended.exit_code != 0 or ended.timed_out:
                raise SandboxInfraError(f"cannot unpack {self._spec.archive}: {ended.stderr.text().strip()[-500:]}")

    @property
    def _work(self) -> Path:
        return self._folder / "work"

    @property
    def _tmp(self) -> Path:
        return self._folder / "tmp"

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
        """Run `argv` on the host, below the folder.

        Raises:
            SandboxInfraError: it could not be started, or the sandbox is closed.
        """
        if not argv:
            raise ValueError("no command")
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        mark = uuid.uuid4().hex
        own = {"PATH": self._path, "HOME": str(self._tmp), "TMPDIR": str(self._tmp), "LANG": "C.UTF-8"}
        marks = {"SELFPLAY_SANDBOX": self.id, "SELFPLAY_EXEC": mark}
        # note: `--nproc` counts all of the user's processes here, so it would hit the user, not the command.
        limits = limit_argv(self._spec, timeout_seconds=timeout_seconds, processes=False)
        inside = [*orphan_argv(timeout_seconds), "env", f"--chdir={self._place(cwd)}", "--"]
        try:
            ended = await run_process(
                ["setpriv", "--pdeathsig", "KILL", "--", *limits, *inside, *argv],
                timeout_seconds=timeout_seconds,
                output_limit=output_limit,
                stdin=stdin,
                env={**own, **self._spec.env, **(env or {}), **marks},
            )
        except OSError as error:
            raise SandboxInfraError(f"a command of sandbox {self.id} could not be started: {error}") from error
        finally:
            sweep(f"SELFPLAY_EXEC={mark}")
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} was closed while it ran a command")
        return ended.result()

    def _place(self, cwd: str | None) -> str:
        """The host's path for a folder inside; relative ones are below the work tree."""
        if cwd is None or cwd == self._spec.workdir:
            return str(self._work)
        return str(self._work / cwd.removeprefix(self._spec.workdir + "/"))

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files below the work tree.

        Raises:
            PermissionError: a path climbs or goes through a link.
            SandboxInfraError: the sandbox is closed, or its file system refuses.
        """
        with self._opened(self._work) as root:
            try:
                write_files(root, files)
            except PermissionError:
                raise
            except OSError as error:
                raise SandboxInfraError(f"cannot write into sandbox {self.id}: {error}") from error

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """One regular file, relative to the work tree, or absolute: then it is the host's path.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: a link, a device, a pipe, a folder.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the sandbox is closed.
        """
        inside = path.removeprefix(self._spec.workdir + "/")
        outside = inside.startswith("/")
        with self._opened(Path("/") if outside else self._work) as root:
            return read_file(root, inside.lstrip("/") if outside else inside, max_bytes=max_bytes)

    @contextlib.contextmanager
    def _opened(self, folder: Path) -> Iterator[int]:
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxInfraError(f"the folder of sandbox {self.id} is gone: {error}") from error
        try:
            yield fd
        finally:
            os.close(fd)

    async def close(self) -> None:
        """End what still runs and remove the folder. Without a point where it could be cancelled."""
        if self._closed:
            return
        self._closed = True
        sweep(f"SELFPLAY_SANDBOX={self.id}")
        shutil.rmtree(self._folder, ignore_errors=True)
        self.on_close()


def sweep(mark: str) -> int:
    """SIGKILL for each process whose environment holds `mark` (`NAME=value`); how many there were."""
    wanted = mark.encode()
    found = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        # Processes of others cannot be read, and some end meanwhile.
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                found += 1
    return found


async def preflight(*, tools: Sequence[str] = TEST_TOOLS) -> Preflight:
    """Run the interpreter once; ready or not, the sentence carries the warning."""
    if sys.platform != "linux":
        return Preflight(ready=False, what=f"sandbox `local` needs Linux; this is {sys.platform}", fix="use Docker")
    missing = [tool for tool in ("prlimit", "setpriv", "timeout", "env", "tar") if shutil.which(tool) is None]
    if missing:
        return Preflight(
            ready=False, what=f"missing: {', '.join(missing)}", fix="apt-get install -y util-linux coreutils tar"
        )
    provider = LocalProvider(environment=tool_environment(tools))
    try:
        sandbox = await provider.create(SandboxSpec(name="python"))
        result = await sandbox.exec([provider.python, "-I", "-c", "import pytest"], timeout_seconds=30.0)
    except SandboxInfraError as error:
        return Preflight(ready=False, what=error.message, fix=error.hint)
    finally:
        await provider.aclose()
    if result.exit_code != 0:
        return Preflight(ready=False, what=f"the interpreter does not run: {result.stderr.strip()[-300:]}")
    return Preflight(ready=True, what=f"works. {WARNING}")
