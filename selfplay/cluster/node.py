"""What runs in an actor, on a node: `SandboxNode` has the node's engine client, `RankNode` is a rank of the learner.

Both are called by the driver alone. They know nothing of Ray, hold no record of the run, and end with the driver.
A sandbox node answers with a value or with the error that the backend raised, so that an error of a candidate is never
taken for one of the cluster.

Not here: who calls (`sandboxes`, `ranks`), what is called (`sandbox`, `learner.ranks_worker`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import selfplay
from selfplay.cluster.archives import Archives
from selfplay.cluster.connections import End, ends
from selfplay.cluster.head import reach
from selfplay.errors import SelfplayError
from selfplay.sandbox import Sandbox, SandboxCapabilities, SandboxInfraError, SandboxProvider, SandboxSpec, Served
from selfplay.sandbox.wheels import Wheel
from selfplay.types import record

EXPECTED = (SelfplayError, FileNotFoundError, PermissionError, ValueError)
"""What the sandbox seam raises; it is carried over as a value."""

ROOM_BYTES = 1 << 20
"""A disk with less than this is full."""

MEET_SECONDS = 30.0
"""Longest wait of a rank for a connection to where rank 0 listens, which it does already."""

_numbers = itertools.count()


@record
class Given:
    """What a node needs to make the sandboxes of a run."""

    kind: str
    """As `sandbox.kind`."""
    recipe: Mapping[str, bytes] | None
    """The files of the project's own recipe `python`; None: the shipped one."""
    wheels: tuple[Wheel, ...]
    """What the repository under play requires."""


@record
class About:
    """What a node is; nodes of one run are alike but for the last two fields."""

    backend: str
    image: str
    """Its name, with the digest of recipe and tools in it; empty where there is none."""
    python: str
    capabilities: SandboxCapabilities
    version: str
    """Of selfplay."""
    notice: str
    host: str
    clock: float
    """Its time of day, in seconds since 1970."""


class SandboxNode:
    """One provider of sandboxes, and those that it made."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._provider: SandboxProvider | None = None
        self._sandboxes: dict[str, Sandbox] = {}
        self._served: dict[int, tuple[str, Served]] = {}
        """Number -> the sandbox's id, and the process."""
        self._archives = Archives()
        self._made_of: dict[str, str] = {}
        """Id of an open sandbox -> its archive."""

    async def answer(self, method: str, *words: Any, **named: Any) -> tuple[bool, Any]:
        """Call one of the methods below: True and its value, or False and its error."""
        try:
            return True, await getattr(self, method)(*words, **named)
        except EXPECTED as error:
            return False, error
        except Exception as error:  # noqa: BLE001 (what nobody foresaw is told with its place, and the node goes on)
            return False, SandboxInfraError(f"{type(error).__name__}: {error} ({_place_of(error)})")

    async def lacking(self) -> tuple[str, ...]:
        """The digests of wheels that are not in the node's cache."""
        return tuple(wheel.sha256 for wheel in self._given.wheels if not wheel.path.is_file())

    async def take_wheel(self, sha256: str, content: bytes) -> None:
        """Put a wheel into the node's cache."""
        path = next(wheel.path for wheel in self._given.wheels if wheel.sha256 == sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{os.getpid()}.part")
        aside.write_bytes(content)
        aside.replace(path)

    async def take_archive(self, name: str, content: bytes) -> tuple[str, ...]:
        """Keep an archive under its digest, in memory; the digests of those that are not kept any more."""
        return self._archives.take(name, content)

    async def begin(self) -> About:
        """Find out whether a backend works here, and remove what dead owners left.

        Raises:
            NotReady: none does.
        """
        from selfplay.sandbox.select import choose

        with tempfile.TemporaryDirectory(prefix="selfplay-recipe-") as below:
            folder = _written(Path(below), self._given.recipe)
            chosen = await asyncio.to_thread(choose, self._given.kind, folder=folder, wheels=self._given.wheels)
            image = await asyncio.to_thread(_image_of, chosen.provider)
        self._provider = chosen.provider
        await chosen.provider.reap()
        return About(
            backend=chosen.provider.name,
            image=image,
            python=chosen.provider.python,
            capabilities=chosen.provider.capabilities,
            version=selfplay.__version__,
            notice=chosen.notice,
            host=socket.gethostname(),
            clock=time.time(),
        )

    async def make(self, spec: SandboxSpec, *, pooled: bool) -> str:
        """A sandbox's id; the spec names its archive by the digest."""
        name = spec.archive
        here = spec if name is None else replace(spec, archive=self._archives.hold(name))
        try:
            made = await (self._whole.acquire(here) if pooled else self._whole.create(here))
        except BaseException:
            if name is not None:
                self._archives.release(name)
            raise
        self._sandboxes[made.id] = made
        if name is not None:
            self._made_of[made.id] = name
        return made.id

    async def inside(self, sandbox: str, method: str, *words: Any, **named: Any) -> Any:
        """A method of a sandbox: its value; of `serve`, the number of the served process."""
        found = self._sandboxes.get(sandbox)
        if found is None:
            if method == "close":
                return None
            raise SandboxInfraError(f"sandbox {sandbox} is closed")
        if method == "diff" and words[0] is not None:
            return await self._diff(found, words[0], **named)
        answer = await getattr(found, method)(*words, **named)
        if method == "exec":
            self._refuse_full()
        if method == "close":
            self._sandboxes.pop(sandbox, None)
            if (name := self._made_of.pop(sandbox, None)) is not None:
                self._archives.release(name)
            # note: they have ended with it.
            self._served = {number: one for number, one in self._served.items() if one[0] != sandbox}
        if method != "serve":
            return answer
        number = next(_numbers)
        self._served[number] = sandbox, answer
        return number

    async def _diff(self, sandbox: Sandbox, base: str, **named: Any) -> Any:
        path = self._archives.hold(base)
        try:
            return await sandbox.diff(path, **named)
        finally:
            self._archives.release(base)

    async def ask(self, served: int, line: bytes, **named: Any) -> bytes:
        """A line to a served process, and its answer."""
        if served not in self._served:
            raise SandboxInfraError("the served process was closed")
        answer = await self._served[served][1].ask(line, **named)
        self._refuse_full()
        return answer

    async def end(self, served: int) -> None:
        """Close a served process; idempotent."""
        if served in self._served:
            await self._served[served][1].close()
            self._served.pop(served, None)

    async def overall(self, method: str, **named: Any) -> Any:
        """A method of the provider: its value."""
        return await getattr(self._whole, method)(**named)

    def _refuse_full(self) -> None:
        """A command of a sandbox without walls may have failed because of the node's disk, and nobody could tell.

        Raises:
            SandboxInfraError: the disk is full.
        """
        if self._whole.capabilities.isolated:
            # note: what such a sandbox writes lies in memory, within its own bounds.
            return
        folder = tempfile.gettempdir()
        if shutil.disk_usage(folder).free < ROOM_BYTES:
            raise SandboxInfraError(f"the disk of {socket.gethostname()} is full ({folder})")

    @property
    def _whole(self) -> SandboxProvider:
        assert self._provider is not None, "it has begun"
        return self._provider


class RankNode:
    """A rank of the learner in an actor's process."""

    def __init__(self) -> None:
        # note: read once, when torch loads its OpenMP (`parts.learner`).
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self._work: Any = None

    def begin(self) -> tuple[str, int]:
        """Load what takes time; the version of selfplay and the process."""
        from selfplay.learner import ranks_worker, trainer  # noqa: F401

        return selfplay.__version__, os.getpid()

    def alive(self) -> set[End]:
        """A sign of life, on a thread that does nothing else; what this process's connections are known by."""
        return ends()

    def meet(self, host: str, port: int, *, rank: int, size: int) -> set[End]:
        """Meet the others where rank 0 listens; what this process's connections are known by then.

        What fails ends the process at once, as in `do`: the others wait for it.
        """
        try:
            from selfplay.learner.ranks_worker import Work
            from selfplay.learner.ranks_world import World

            # note: torch would try for as long as a sum may take.
            reach(f"{host}:{port}", seconds=MEET_SECONDS)
            self._work = Work(World.follow(host, port, rank=rank, size=size))
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)
        return ends()

    def do(self, name: str, words: Sequence[Any], named: Mapping[str, Any]) -> str | None:
        """See `Work.do`; what fails on this rank alone ends the process at once: others wait for its part of a sum."""
        try:
            done: str | None = self._work.do(name, words, named)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)
        return done


def _written(below: Path, files: Mapping[str, bytes] | None) -> Path | None:
    """A folder of recipes with one of these files."""
    if files is None:
        return None
    for name, content in files.items():
        (below / "python" / name).parent.mkdir(parents=True, exist_ok=True)
        (below / "python" / name).write_bytes(content)
    return below


def _image_of(provider: SandboxProvider) -> str:
    """The name of the image that sandboxes start from, which has a digest in it; empty for a backend without one."""
    image = getattr(provider, "image", None)
    return str(image()) if image is not None else ""


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
