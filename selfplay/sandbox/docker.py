"""Sandboxes out of hardened containers, through the Docker engine's API (podman's socket speaks it too).

No network, every capability dropped, no new privileges, read-only root with size-limited tmpfs, hard limits on
memory (swap included), processes and CPU, two uids, the engine's default seccomp profile, and a time to live
inside the container. A name is chosen before creation and removed on any failure. Engine calls block, so they
run in threads of their own, each with a deadline.

One command at a time runs in a sandbox: the sweep that ends a command's stray children spares nothing else of
its uid. Not covered: building the image (`image`), pools and a persistent channel.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import io
import json
import os
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import docker.errors
import requests

from selfplay.errors import NotReady, SelfplayError
from selfplay.sandbox import PolicyUnsupported, Preflight, SandboxCapabilities, SandboxInfraError, SandboxSpec
from selfplay.sandbox import files as files_module
from selfplay.sandbox.channel import KEEPER, SLACK_SECONDS, SWEEP, Answer, execute, wrapped
from selfplay.sandbox.environment import LOOK, PYTHON_INSIDE, tool_environment
from selfplay.sandbox.hardening import ERRORS, EXPIRES, GET, OWNER, PUT, environment_of, host_config, labels_of
from selfplay.sandbox.image import connect, has_image, image_tag
from selfplay.sandbox.process import Owner, open_archive
from selfplay.sandbox.recipe import Recipe, load_recipe
from selfplay.types import Result

CALL_SECONDS = 60.0
THREADS = 16
_SWEEPS = 3
_FAILURES = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
_T = TypeVar("_T")


class DockerProvider:
    """Makes containers, single-use."""

    name = "docker"
    capabilities = SandboxCapabilities(network_none=True, limits="hard", isolated=True)
    python = PYTHON_INSIDE

    def __init__(self, *, recipe: Recipe | None = None, image: str | None = None) -> None:
        self._recipe = recipe if recipe is not None else load_recipe()
        self._image = image
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="selfplay-docker")
        self._local = threading.local()
        self._live: dict[str, DockerSandbox] = {}
        self._owed: set[str] = set()
        """Names of containers that are to be removed, and may still be there."""
        self._closed = False
        self._pid = os.getpid()
        self._clients: list[Any] = []
        self._at_exit = functools.partial(_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    @property
    def api(self) -> Any:
        """The calling thread's client.

        Raises:
            NotReady: no engine answers.
        """
        if not hasattr(self._local, "api"):
            self._local.api = connect(timeout_seconds=CALL_SECONDS)
            self._clients.append(self._local.api)
        return self._local.api

    def image(self) -> str:
        """The image that sandboxes start from. Blocking.

        Raises:
            NotReady: no engine answers, or it has no such image.
        """
        if self._image is None:
            self._image = image_tag(self._recipe, tool_environment(self._recipe.tools))
        if not has_image(self.api, self._image):
            raise NotReady(f"the Docker engine has no image `{self._image}`", hint="selfplay doctor --fix")
        return self._image

    async def call(self, what: str, do: Callable[[], _T]) -> _T:
        """`do()` in one of the engine threads; the engine's own errors become ours.

        Raises:
            SandboxInfraError: the engine failed or did not answer.
        """
        if self._closed:
            raise SandboxInfraError(f"docker, {what}: the provider is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, do)
        except _FAILURES as error:
            raise SandboxInfraError(f"docker, {what}: {error}") from error
        except NotReady as error:
            raise SandboxInfraError(error.message, hint=error.hint) from error

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        """A ready container with the archive unpacked.

        Raises:
            PolicyUnsupported: the spec asks for a network.
            SandboxInfraError: the engine failed; nothing is left behind.
        """
        if spec.network != "none":
            raise PolicyUnsupported(
                "sandbox `docker` gives no network yet, and the spec asks for `public`", hint="use network = none"
            )
        sandbox = DockerSandbox(self, spec)
        self._live[sandbox.id] = sandbox
        try:
            await self.call("create", lambda: self._start(sandbox.id, spec))
            if spec.archive is not None:
                await sandbox.unpack(spec.archive)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _start(self, name: str, spec: SandboxSpec) -> None:
        api, image = self.api, self.image()
        self._owed.add(name)
        api.create_container(
            image,
            ["sleep", f"{spec.ttl_seconds:.0f}"],
            name=name,
            user=KEEPER,
            host_config=host_config(api, spec),
            labels=labels_of(spec),
            environment=environment_of(spec),
            working_dir=spec.workdir,
            network_disabled=True,
        )
        api.start(name)

    async def remove(self, name: str) -> None:
        """Remove a container by name; one that the engine would not remove now is owed, and tried again."""
        if name in self._owed:
            await self._try_to_remove(name)
        self._live.pop(name, None)

    async def _try_to_remove(self, name: str) -> None:
        with contextlib.suppress(SandboxInfraError):
            await self.call("remove", lambda: self.remove_now(name))

    def remove_now(self, name: str) -> None:
        """Remove a container, its volumes too, whatever state it is in. Blocking."""
        with contextlib.suppress(docker.errors.NotFound):
            self.api.remove_container(name, force=True, v=True)
        self._owed.discard(name)

    async def reap(self) -> tuple[str, ...]:
        """Remove the containers of dead owners and those past their time.

        Raises:
            SandboxInfraError: the engine failed.
        """
        return await self.call("reap", self._reap)

    def _reap(self) -> tuple[str, ...]:
        reaped = []
        for found in self.api.containers(all=True, filters={"label": OWNER}):
            labels = found["Labels"]
            owner = Owner.parse(labels[OWNER])
            expires = labels.get(EXPIRES, "")
            late = expires.isdecimal() and int(expires) < time.time()
            if late or (owner is not None and owner.dead()):
                with contextlib.suppress(docker.errors.NotFound):
                    self.api.remove_container(found["Id"], force=True, v=True)
                    reaped.append(str(found["Names"][0]).lstrip("/"))
        return tuple(sorted(reaped))

    async def aclose(self) -> None:
        """Remove every container made here; the provider is of no use after it.

        Raises:
            SandboxInfraError: some could not be removed; the next start's `reap` will.
        """
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._live.values())))
        for name in list(self._owed):
            await self.remove(name)
        self._closed = True
        self._pool.shutdown(wait=False)
        while self._clients:
            self._clients.pop().close()
        atexit.unregister(self._at_exit)
        if self._owed:
            raise SandboxInfraError(f"{len(self._owed)} containers could not be removed; the next run reaps them")

    def sweep_at_exit(self) -> None:
        """Remove what is still there when the interpreter ends. Blocking, and only in the process that made it."""
        if self._owed and os.getpid() == self._pid:
            with contextlib.suppress(*_FAILURES, SelfplayError):
                for name in list(self._owed):
                    self.remove_now(name)


def _at_exit(reference: weakref.ref[DockerProvider]) -> None:
    provider = reference()
    if provider is not None:
        provider.sweep_at_exit()


class DockerSandbox:
    """One container."""

    def __init__(self, provider: DockerProvider, spec: SandboxSpec) -> None:
        # Chosen before the container exists, so that it can be removed however far its creation came.
        self.id = f"selfplay-{uuid.uuid4().hex[:16]}"
        self._provider = provider
        self._spec = spec
        self._turn = asyncio.Lock()
        self._oom_kills = 0
        self._closing: asyncio.Task[None] | None = None

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
        """Run `argv` as the candidate; commands in one sandbox wait for each other.

        Raises:
            SandboxInfraError: the engine failed, or the sandbox is closed.
        """
        if not argv:
            raise ValueError("no command")
        folder = cwd if cwd is not None else self._spec.workdir
        command = wrapped(argv, timeout_seconds=timeout_seconds, cwd=os.path.join(self._spec.workdir, folder))
        async with self._turn:
            answer = await self._execute(
                command, env=env or {}, stdin=stdin, output_limit=output_limit, timeout_seconds=timeout_seconds
            )
            oom_killed = answer.exit_code == 137 and await self._sweep()
        # 137 is the deadline's signal, the kernel's for memory, and the candidate's own: the clock tells them apart.
        timed_out = answer.exit_code == 137 and answer.seconds >= timeout_seconds and not oom_killed
        return Result(
            exit_code=None if timed_out else answer.exit_code,
            stdout=answer.stdout.text(),
            stderr=answer.stderr.text(),
            seconds=answer.seconds,
            timed_out=timed_out,
            oom_killed=oom_killed,
            stdout_dropped=answer.stdout.dropped,
            stderr_dropped=answer.stderr.dropped,
        )

    async def _execute(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        output_limit: int = 1 << 16,
    ) -> Answer:
        if self._closing is not None:
            raise SandboxInfraError(f"sandbox {self.id} is closed")
        return await self._provider.call(
            "exec",
            lambda: execute(
                self._provider.api,
                self.id,
                argv,
                env=env or {},
                stdin=stdin,
                output_limit=output_limit,
                deadline_seconds=timeout_seconds + SLACK_SECONDS,
            ),
        )

    async def _sweep(self) -> bool:
        """Kill all that runs as the candidate; True where the kernel has ended something for memory since.

        Raises:
            SandboxInfraError: the container does not run any more, which no candidate can bring about.
        """
        for _ in range(_SWEEPS):
            # The candidate may kill the sweeper, if it is quicker.
            answer = await self._execute(SWEEP, timeout_seconds=10.0)
            if answer.exit_code == 0:
                break
        state = await self._provider.call("inspect", lambda: self._provider.api.inspect_container(self.id)["State"])
        if not state["Running"]:
            raise SandboxInfraError(f"the container {self.id} was stopped from outside")
        kills = sum(int(number) for number in re.findall(r"^oom_kill (\d+)$", answer.stdout.text(), re.MULTILINE))
        grown = kills > self._oom_kills
        self._oom_kills = max(kills, self._oom_kills)
        return grown

    async def unpack(self, archive: str) -> None:
        """Unpack a tar file into the work tree.

        Raises:
            SandboxInfraError: it cannot be read or unpacked.
        """
        with open_archive(archive) as file:
            payload = await asyncio.to_thread(file.read)
        argv = wrapped(["tar", "-x", "-f", "-", "--no-same-owner"], timeout_seconds=60.0, cwd=self._spec.workdir)
        answer = await self._execute(argv, timeout_seconds=60.0, stdin=payload)
        if answer.exit_code != 0:
            raise SandboxInfraError(f"cannot unpack {archive}: {answer.stderr.text().strip()[-500:]}")

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files below the work tree.

        Raises:
            PermissionError: a path climbs or goes through a link.
            SandboxInfraError: the engine failed, or the file system refuses.
        """
        stdin = io.BytesIO()
        for path, content in files.items():
            files_module.parts_of(path)
            stdin.write(json.dumps([path, len(content)]).encode() + b"\n" + content)
        await self._inside(PUT, self._spec.workdir, stdin=stdin.getvalue(), output_limit=1 << 16)

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """One regular file of the container.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: a link, a device, a pipe, a folder.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the engine failed.
        """
        folder, relative = ("/", path.lstrip("/")) if path.startswith("/") else (self._spec.workdir, path)
        files_module.parts_of(relative)
        # note: on stdin, because the engine would not carry a name that is no UTF-8 as an argument.
        wanted = json.dumps([relative, max_bytes]).encode()
        answer = await self._inside(GET, folder, stdin=wanted, output_limit=max(max_bytes, 1 << 12))
        return answer.stdout.raw()

    async def _inside(self, script: str, folder: str, *, stdin: bytes, output_limit: int) -> Answer:
        """Run `script` after the source of `files`, in the image's own interpreter; its exit code is the error."""
        source = Path(files_module.__file__).read_text(encoding="utf-8")
        argv = [PYTHON_INSIDE, "-I", "-S", "-c", f"{source}\n{script}", folder]
        async with self._turn:
            answer = await self._execute(argv, timeout_seconds=60.0, stdin=stdin, output_limit=output_limit)
        about = answer.stderr.text().strip()[-500:]
        if answer.exit_code in ERRORS:
            raise ERRORS[answer.exit_code](about)
        if answer.exit_code != 0:
            raise SandboxInfraError(f"cannot reach the files of sandbox {self.id}: {about}")
        return answer

    async def close(self) -> None:
        """Remove the container. Goes on where the caller is cancelled; a second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._provider.remove(self.id))
        await asyncio.shield(self._closing)


async def preflight(*, recipe: Recipe | None = None) -> Preflight:
    """Make a container and look around in it."""
    try:
        result = await _look(DockerProvider(recipe=recipe))
    except SelfplayError as error:
        return Preflight(ready=False, what=error.message, fix=error.hint)
    if result.exit_code != 0:
        return Preflight(ready=False, what=f"a container came up wrong: {result.stderr.strip()[-300:]}")
    return Preflight(ready=True, what=f"made a container and looked around in it: {result.stdout.strip()}")


async def _look(provider: DockerProvider) -> Result:
    try:
        sandbox = await provider.create(SandboxSpec(name="python"))
        return await sandbox.exec([provider.python, "-I", "-c", LOOK], timeout_seconds=30.0)
    finally:
        await provider.aclose()
