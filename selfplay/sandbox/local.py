"""UNSAFE: runs commands as you, on this host, in a temporary folder. For code that you trust.

Covered: a clean environment, a folder of its own, rlimits, a deadline, death of what it started (also of
what left the process group, as long as it kept its environment), and sweeping what dead engines left.

Not covered: isolation. A command reads and writes whatever you can, and has the network; a spec that asks
for none is accepted, because the person chose this backend by name and `WARNING` was shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.sandbox import Difference, Left, Preflight, Sandbox, SandboxCapabilities, SandboxInfraError, SandboxSpec
from selfplay.sandbox.difference import compare, entries_of_folder
from selfplay.sandbox.environment import TEST_TOOLS, Environment, tool_environment
from selfplay.sandbox.files import read_file, write_files
from selfplay.sandbox.piped import Piped
from selfplay.sandbox.pool import Pool
from selfplay.sandbox.process import Owner, limit_argv, open_archive, orphan_argv, run_process, start_process
from selfplay.sandbox.recipe import Recipe, spec_of
from selfplay.sandbox.remains import OWNER, end, sweep
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

    def __init__(
        self,
        *,
        environment: Environment | None = None,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self.pool = Pool(self.create, size=1)
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
        sandbox = LocalSandbox(spec, parent=self._folder, python=self.python, now=self._clock())
        self._live[sandbox.id] = sandbox
        sandbox.on_close = lambda: self._live.pop(sandbox.id, None)
        try:
            await sandbox.open()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A clean folder out of the pool, else one made now.

        Raises:
            SandboxInfraError: as `create`.
        """
        return await self.pool.acquire(spec)

    async def listed(self) -> tuple[Left, ...]:
        """Every folder that says whose it is."""
        now = self._clock()
        found = (_left(folder, now=now) for folder in sorted(self._folder.glob("sp-*")))
        return tuple(left for left in found if left is not None)

    async def reap(self, *, older_than_seconds: float | None = None) -> tuple[str, ...]:
        """Remove the folders, and end the processes, of dead engines; what could not be removed is still listed."""
        old = older_than_seconds if older_than_seconds is not None else 0.0
        dead = [left.id for left in await self.listed() if left.dead and left.age_seconds >= old]
        return tuple(name for name in dead if end(self._folder / name, mark=f"SELFPLAY_SANDBOX={name}"))

    @classmethod
    async def preflight(cls, *, recipe: Recipe | None = None) -> Preflight:
        """Run the interpreter once; ready or not, the sentence carries the warning."""
        if sys.platform != "linux":
            return Preflight(ready=False, what=f"sandbox `local` needs Linux; this is {sys.platform}", fix="use Docker")
        missing = [tool for tool in ("prlimit", "setpriv", "timeout", "env", "tar") if shutil.which(tool) is None]
        if missing:
            return Preflight(
                ready=False, what=f"missing: {', '.join(missing)}", fix="apt-get install -y util-linux coreutils tar"
            )
        provider = cls(environment=tool_environment(recipe.tools if recipe is not None else TEST_TOOLS))
        try:
            sandbox = await provider.create(spec_of(recipe))
            result = await sandbox.exec([provider.python, "-I", "-c", "import pytest"], timeout_seconds=30.0)
        except SandboxInfraError as error:
            return Preflight(ready=False, what=error.message, fix=error.hint)
        finally:
            await provider.aclose()
        if result.exit_code != 0:
            return Preflight(ready=False, what=f"the interpreter does not run: {result.stderr.strip()[-300:]}")
        return Preflight(ready=True, what=f"works. {WARNING}")

    async def aclose(self) -> None:
        """Close every sandbox made here, idle ones too."""
        await self.pool.aclose()
        for sandbox in list(self._live.values()):
            await sandbox.close()


def _left(folder: Path, *, now: float) -> Left | None:
    """What a folder says of itself; None where it says nothing.

    An owner on this host is asked for, whatever the clock says; of any other, the time to live decides.
    """
    try:
        owner = Owner.parse((folder / OWNER).read_text(encoding="utf-8"))
        made = folder.joinpath(OWNER).stat().st_mtime
    except (OSError, ValueError):
        return None
    if owner is None:
        return None
    told: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        told = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    made = float(told.get("made", made))
    here = owner.host == socket.gethostname()
    return Left(
        id=folder.name,
        backend=LocalProvider.name,
        owner=str(owner),
        dead=owner.dead() if here else now - made > float(told.get("ttl_seconds", math.inf)),
        state="folder",
        age_seconds=max(0.0, now - made),
        labels=told.get("labels", {}),
    )


class LocalSandbox:
    """One folder: `work/` stands for the spec's work tree, `tmp/` for /tmp."""

    def __init__(self, spec: SandboxSpec, *, parent: Path, python: str, now: float) -> None:
        self.id = f"sp-{uuid.uuid4().hex[:16]}"
        self.on_close: Callable[[], object] = lambda: None
        self._spec = spec
        self._folder = parent / self.id
        self._path = f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin"
        self._made = now
        self._served: set[Piped] = set()
        self._closed = False

    async def open(self) -> None:
        """Make the folder and unpack the archive.

        Raises:
            SandboxInfraError: that failed.
        """
        try:
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700)
            told = {"made": self._made, "ttl_seconds": self._spec.ttl_seconds, "labels": dict(self._spec.labels)}
            (self._folder / "spec.json").write_text(json.dumps(told), encoding="utf-8")
            (self._folder / OWNER).write_text(str(Owner.here()), encoding="utf-8")
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
        mark = uuid.uuid4().hex
        try:
            ended = await run_process(
                self._command(argv, timeout_seconds=timeout_seconds, cwd=cwd),
                timeout_seconds=timeout_seconds,
                output_limit=output_limit,
                stdin=stdin,
                env=self._variables(env, mark),
            )
        except OSError as error:
            raise SandboxInfraError(f"a command of sandbox {self.id} could not be started: {error}") from error
        finally:
            sweep(f"SELFPLAY_EXEC={mark}")
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} was closed while it ran a command")
        return ended.result()

    def _command(self, argv: Sequence[str], *, timeout_seconds: float, cwd: str | None) -> list[str]:
        if not argv:
            raise ValueError("no command")
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        # note: `--nproc` counts all of the user's processes here, so it would hit the user, not the command.
        limits = limit_argv(self._spec, timeout_seconds=timeout_seconds, processes=False)
        inside = [*orphan_argv(timeout_seconds), "env", f"--chdir={self._place(cwd)}", "--"]
        return ["setpriv", "--pdeathsig", "KILL", "--", *limits, *inside, *argv]

    def _variables(self, env: Mapping[str, str] | None, mark: str) -> dict[str, str]:
        own = {"PATH": self._path, "HOME": str(self._tmp), "TMPDIR": str(self._tmp), "LANG": "C.UTF-8"}
        marks = {"SELFPLAY_SANDBOX": self.id, "SELFPLAY_EXEC": mark}
        return {**own, **self._spec.env, **(env or {}), **marks}

    async def serve(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Piped:
        """Start `argv` on the host, below the folder, and leave it running for the spec's time to live.

        Raises:
            SandboxInfraError: it could not be started, or the sandbox is closed.
        """
        mark = uuid.uuid4().hex
        try:
            process = start_process(
                self._command(argv, timeout_seconds=self._spec.ttl_seconds, cwd=cwd),
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._variables(env, mark),
            )
        except OSError as error:
            raise SandboxInfraError(f"sandbox {self.id} cannot serve: {error}") from error

        def fault() -> str:
            return f"sandbox {self.id} ended under its served process" if not self._stands() else ""

        def ended(served: Piped) -> None:
            self._served.discard(served)
            sweep(f"SELFPLAY_EXEC={mark}")

        served = Piped(process, fault=fault, ended=ended)
        self._served.add(served)
        return served

    async def diff(
        self, base: str | None = None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
    ) -> Difference:
        """Read the work tree and compare it.

        Raises:
            SandboxInfraError: it cannot be read, or the sandbox is closed.
        """
        against = base if base is not None else self._spec.archive

        def compared() -> Difference:
            with self._opened(self._work) as root:
                return compare(entries_of_folder(root), against, allow=allow, max_bytes=max_bytes)

        return await asyncio.to_thread(compared)

    async def sweep(self) -> int:
        """Kill what carries the sandbox's mark in its environment; how many processes, our own wrappers among them."""
        if self._closed:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        return sweep(f"SELFPLAY_SANDBOX={self.id}")

    async def alive(self) -> bool:
        """Is the folder there?"""
        return not self._closed and self._stands()

    def _stands(self) -> bool:
        return not self._closed and self._work.is_dir()

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
        """End what still runs and remove the folder. Goes on where the caller is cancelled.

        What cannot be removed keeps the name of its owner, and is reaped once that is dead.
        """
        if self._closed:
            return
        self._closed = True
        end(self._folder, mark=f"SELFPLAY_SANDBOX={self.id}")
        self.on_close()
        # note: last, because it is the only point where this could be cancelled; each goes on by itself then.
        await asyncio.gather(*(served.close() for served in list(self._served)))
