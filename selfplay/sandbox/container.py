"""One container as a sandbox: commands and files through its channel, and who is to blame when that is lost.

One command at a time. The channel's program runs as the candidate, who may kill or stop it: where the engine says
that the container runs, that the same engine still knows the program, and that it ended (or stays silent beyond the
deadline), it is the candidate's doing, a `Result`; all else is a `SandboxInfraError`. A candidate whose processes
cannot be ended any more has spent the sandbox: its commands end with 137, its files cannot be read.

Not covered: making and removing containers (`docker`), the line itself (`channel`), asking the engine (`inquest`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from selfplay.sandbox import Difference, SandboxInfraError, SandboxSpec
from selfplay.sandbox.channel import (
    CANDIDATE,
    Channel,
    Lost,
    Refused,
    Report,
    Stream,
    agent_argv,
    command_fields,
    put_body,
)
from selfplay.sandbox.difference import difference
from selfplay.sandbox.engine import Engine, open_exec
from selfplay.sandbox.environment import PYTHON_INSIDE
from selfplay.sandbox.files import parts_of
from selfplay.sandbox.hardening import ERRORS
from selfplay.sandbox.inquest import Inquest
from selfplay.sandbox.process import open_archive
from selfplay.sandbox.served import DockerServed
from selfplay.types import Result

FILES_SECONDS = 60.0
"""For what reads and writes files; a few milliseconds where all is well."""
SWEEP_SECONDS = 10.0
_SPENT = "what the candidate left behind in the sandbox lets nothing else run in it"
_PACK = 'chmod -R u+rwX "$0"; cd "$0" && exec tar --create --sparse --format=gnu --file=- .'


class Owner(Protocol):
    """The provider, as a container needs it."""

    engine: Engine

    async def remove(self, name: str) -> None:
        """Remove a container by name."""
        ...


class _Spent(Exception):
    """Nothing can be run in this sandbox any more, by the candidate's doing."""

    def __init__(self, *, oom_killed: bool = False) -> None:
        super().__init__(_SPENT)
        self.oom_killed = oom_killed


class DockerSandbox:
    """One container."""

    def __init__(self, owner: Owner, spec: SandboxSpec) -> None:
        # Chosen before the container exists, so that it can be removed however far its creation came.
        self.id = f"selfplay-{uuid.uuid4().hex[:16]}"
        self._owner = owner
        self._engine = owner.engine
        self._spec = spec
        self._inquest = Inquest(owner.engine, self.id)
        self._turn = asyncio.Lock()
        self._channel: Channel | None = None
        self._served: DockerServed | None = None
        self._pristine = True
        self._spent = False
        self._oom_kills = 0
        self._closing: asyncio.Task[None] | None = None

    async def connect(self, number: str, connection: object) -> None:
        """Take over the exec and the socket of the agent that was started with the container.

        Raises:
            SandboxInfraError: it does not answer.
        """
        self._channel = await self._greeted(number, connection)

    async def _greeted(self, number: str, connection: object) -> Channel:
        channel = Channel(await Stream.over(connection), number)  # type: ignore[arg-type]
        try:
            await channel.hello()
        except Lost as lost:
            about = channel.stream.stderr[-500:] or str(lost)
            raise SandboxInfraError(f"the agent of sandbox {self.id} did not start: {about}") from lost
        return channel

    async def _open(self) -> Channel:
        """Another agent."""
        argv = agent_argv(PYTHON_INSIDE)
        number, connection = await self._engine.call(
            "exec", lambda: open_exec(self._engine.api, self.id, argv, user=CANDIDATE), tries=2
        )
        return await self._greeted(number, connection)

    async def _ready(self) -> Channel:
        """The channel, opened again where it was lost.

        Raises:
            SandboxInfraError: the sandbox is closed, or the engine failed.
            _Spent: the candidate's doing.
        """
        self._check()
        if self._spent:
            raise _Spent
        if self._channel is not None and self._channel.stream.ended:
            # It ended unseen, or was broken off with a cancelled command: nothing of it may meet the next agent.
            await self._blame(Lost("ended"))
        if self._channel is None:
            try:
                self._channel = await self._open()
            except SandboxInfraError:
                # note: a candidate who fills the memory with files lets no process start.
                if not self._pristine and await self._inquest.memory_is_full():
                    self._spent = True
                    raise _Spent(oom_killed=True) from None
                raise
        return self._channel

    def _check(self) -> None:
        if self._closing is not None:
            raise SandboxInfraError(f"sandbox {self.id} is closed")

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
            SandboxInfraError: the engine failed, the sandbox is closed, or a served process is open.
        """
        place, variables = self._place(cwd), dict(env or {})
        command_fields(argv, cwd=place, env=variables)
        async with self._turn:
            if self._served is not None:
                raise SandboxInfraError(f"sandbox {self.id} serves a process; close it before the next command")
            start = time.monotonic()
            try:
                channel = await self._ready()
                self._pristine = False
                report = await channel.run(
                    argv, cwd=place, env=variables, stdin=stdin, timeout_seconds=timeout_seconds,
                    output_limit=output_limit,
                )  # fmt: skip
            except Lost as lost:
                oom_killed = await self._blame(lost)
                return _lost_result(time.monotonic() - start, late=lost.how == "late", oom_killed=oom_killed)
            except _Spent as spent:
                return _lost_result(time.monotonic() - start, late=False, oom_killed=spent.oom_killed)
            except Refused as refused:
                raise SandboxInfraError(f"sandbox {self.id} cannot start a command: {refused}") from refused
            self._oom_kills += report.oom_kills
        return _result(report)

    def _place(self, cwd: str | None) -> str:
        return os.path.join(self._spec.workdir, cwd or "")

    async def _blame(self, lost: Lost) -> bool:
        """After a loss that the candidate brought about: end what is left; True where the kernel ended it for memory.

        Raises:
            SandboxInfraError: the engine or the container failed by themselves.
        """
        channel, self._channel = self._channel, None
        assert channel is not None
        channel.stream.abort()
        self._check()
        found = await self._inquest.of(channel.exec_id, ended=lost.how == "ended")
        self._check()
        self._spent = found.spent
        grown = found.starved or found.oom_kills > self._oom_kills
        self._oom_kills = max(found.oom_kills, self._oom_kills)
        return grown

    async def _ask(
        self,
        verb: bytes,
        fields: Sequence[str],
        body: bytes = b"",
        *,
        seconds: float = FILES_SECONDS,
        part: Callable[[bytes], object] | None = None,
        fresh: Callable[[], object] = lambda: None,
    ) -> bytes:
        """A request that is no command; asked a second time where the first lost the channel. Holds the turn.

        `fresh` is called before each try.

        Raises:
            PermissionError: the candidate lets nothing run.
            SandboxInfraError: the engine failed.
        """
        for _ in range(2):
            fresh()
            try:
                return await (await self._ready()).ask(verb, fields, body, seconds=seconds, part=part)
            except Lost as lost:
                await self._blame(lost)
            except _Spent as spent:
                raise PermissionError(str(spent)) from spent
        self._spent = True
        raise PermissionError(_SPENT)

    async def _files(
        self, verb: bytes, fields: Sequence[str], body: bytes = b"", **more: Callable[..., object]
    ) -> None:
        async with self._turn:
            try:
                await self._ask(verb, fields, body, **more)  # type: ignore[arg-type]
            except Refused as refused:
                if refused.number in ERRORS:
                    raise ERRORS[refused.number](str(refused)) from refused
                raise SandboxInfraError(f"cannot reach the files of sandbox {self.id}: {refused}") from refused

    async def unpack(self, archive: str) -> None:
        """Unpack a tar file into the work tree.

        Raises:
            SandboxInfraError: it cannot be read or unpacked.
        """
        with open_archive(archive) as file:
            payload = await asyncio.to_thread(file.read)
        argv = ["tar", "-x", "-f", "-", "--no-same-owner"]
        fields = [f"{FILES_SECONDS:.0f}", *command_fields(argv, cwd=self._spec.workdir, env={})]
        async with self._turn:
            numbers, _, about = (await self._ask(b"p", fields, payload, part=lambda chunk: None)).partition(b"\n")
        if numbers != b"0 0":
            raise SandboxInfraError(f"cannot unpack {archive}: {about.decode(errors='replace').strip()[-500:]}")

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files below the work tree.

        Raises:
            PermissionError: a path climbs or goes through a link, or the candidate lets nothing run.
            SandboxInfraError: the engine failed, or the file system refuses.
        """
        for path in files:
            parts_of(path)
        await self._files(b"w", [self._spec.workdir], put_body(files))

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """One regular file of the container.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: a link, a device, a pipe, a folder; or the candidate lets nothing run.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the engine failed.
        """
        folder, relative = ("/", path.lstrip("/")) if path.startswith("/") else (self._spec.workdir, path)
        parts_of(relative)
        content = bytearray()
        await self._files(b"g", [folder, relative, str(max_bytes)], part=content.extend, fresh=content.clear)
        return bytes(content)

    async def serve(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> DockerServed:
        """Start `argv` as the candidate and leave it running, in an exec of its own.

        Raises:
            SandboxInfraError: the engine failed, the sandbox is closed, or it serves a process already.
        """
        fields = command_fields(argv, cwd=self._place(cwd), env=dict(env or {}))
        async with self._turn:
            self._check()
            if self._served is not None:
                raise SandboxInfraError(f"sandbox {self.id} serves a process already; close it before the next")
            if self._spent:
                raise SandboxInfraError(f"sandbox {self.id}: {_SPENT}")
            channel = await self._open()
            self._pristine = False
            try:
                await channel.ask(b"t", fields, seconds=SWEEP_SECONDS)
            except (Lost, Refused) as error:
                channel.stream.abort()
                raise SandboxInfraError(f"sandbox {self.id} cannot serve: {error}") from error
            self._served = DockerServed(channel, inquest=self._inquest, ended=self._served_ended)
        return self._served

    async def diff(
        self, base: str | None = None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
    ) -> Difference:
        """Read the work tree out as a tar and compare it here.

        Raises:
            SandboxInfraError: it cannot be read out, though the candidate does not keep it from being.
        """
        most = (2 * self._spec.tmpfs_mb + 64) << 20
        argv = ["sh", "-c", _PACK, self._spec.workdir]
        fields = [f"{FILES_SECONDS:.0f}", *command_fields(argv, cwd="/", env={})]
        with tempfile.TemporaryFile(prefix="selfplay-tree-") as tree:

            def part(chunk: bytes) -> None:
                if tree.tell() + len(chunk) > most:
                    raise Lost("breach", "the work tree does not end")
                tree.write(chunk)

            def fresh() -> None:
                tree.seek(0)
                tree.truncate()

            try:
                await self._files(b"p", fields, part=part, fresh=fresh)
            except PermissionError as error:
                return Difference(patch=b"", changed=(), dropped={".": str(error)})
            against = base if base is not None else self._spec.archive
            return await asyncio.to_thread(difference, tree, against, allow=allow, max_bytes=max_bytes)

    async def sweep(self) -> int:
        """Kill every process of the candidate, a served one too; how many the agent saw end.

        Raises:
            SandboxInfraError: the engine failed, or the sandbox is closed.
        """
        async with self._turn:
            return await self._sweep()

    async def _sweep(self) -> int:
        with contextlib.suppress(PermissionError, Refused):
            return int(await self._ask(b"s", [], seconds=0.0))
        return 0

    async def _served_ended(self, served: DockerServed) -> None:
        """A served process was closed: end what it started."""
        async with self._turn:
            if self._served is served:
                self._served = None
                if self._closing is None:
                    # note: an engine that fails here fails the next command too, which is the one to say so.
                    with contextlib.suppress(SandboxInfraError):
                        await self._sweep()

    async def alive(self) -> bool:
        """Does the container run, and does it let commands start?"""
        if self._closing is not None or self._spent:
            return False
        if self._pristine and self._channel is not None:
            # note: no candidate was in it yet, so the line's end is the engine's or the container's own word.
            return not self._channel.stream.ended
        try:
            return not await self._inquest.starved()
        except SandboxInfraError:
            return False

    async def close(self) -> None:
        """Remove the container. Goes on where the caller is cancelled; a second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._remove())
        await asyncio.shield(self._closing)

    async def _remove(self) -> None:
        for channel in (self._channel, self._served.channel if self._served is not None else None):
            if channel is not None:
                channel.stream.abort()
        await self._owner.remove(self.id)


def _result(report: Report) -> Result:
    return Result(
        exit_code=None if report.late else report.exit_code,
        stdout=report.stdout,
        stderr=report.stderr,
        seconds=report.seconds,
        timed_out=report.late,
        oom_killed=report.oom_kills > 0,
        stdout_dropped=report.stdout_dropped,
        stderr_dropped=report.stderr_dropped,
    )


def _lost_result(seconds: float, *, late: bool, oom_killed: bool) -> Result:
    """What a command did that took the channel with it; its output is lost too."""
    return Result(
        exit_code=None if late else 137, stdout="", stderr="", seconds=seconds, timed_out=late, oom_killed=oom_killed
    )
