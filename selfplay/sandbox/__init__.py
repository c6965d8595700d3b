"""How commands are isolated: one contract, one file a backend (`docker`, `bubblewrap`, `local`).

A sandbox is single-use: created clean, used for one candidate, closed. What the candidate does to
itself (timeout, out of memory, kills its own processes) is a `Result`, or `ChannelLost` where a served
process went away; what the machine or the backend does is a `SandboxInfraError`, from which no reward
may follow.

    create     a new sandbox, made now                    exec     one command, waited for
    acquire    a clean one from the pool, else create     serve    one process that stays and answers lines
    reap       what dead owners left                      diff     what changed, told by the engine

Not here: what is run in it (`games`), and its recipes (`sandboxes/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol

from selfplay.errors import SelfplayError
from selfplay.types import Result, record

if TYPE_CHECKING:
    from selfplay.sandbox.recipe import Recipe


class SandboxInfraError(SelfplayError):
    """Backend or machine failed: no sample, retried within bounds."""

    exit_code = 3
    kind = "fault"


class PolicyUnsupported(SelfplayError):
    """The backend cannot enforce what the spec asks; refused, never weakened in silence."""

    exit_code = 2
    kind = "config"


class ChannelLost(SelfplayError):
    """A served process ended, or answered too late or not as agreed, while backend and sandbox are well.

    It is the candidate's doing, so it is an outcome with a reward, never a missing sample.
    """

    exit_code = 1
    kind = "candidate"


@record
class SandboxSpec:
    """What a sandbox is made of and what it may use."""

    name: str
    """The recipe under `sandboxes/`, e.g. `python`."""
    archive: str | None = None
    """Path of a tar file unpacked into `workdir` before it is ready; cached by the backend per path."""
    workdir: str = "/workspace"
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1.0
    memory_mb: int = 1024
    pids: int = 256
    tmpfs_mb: int = 256
    file_mb: int = 64
    """Largest file a process may write."""
    network: Literal["none", "public"] = "none"
    ttl_seconds: float = 1800.0
    labels: Mapping[str, str] = field(default_factory=dict)
    """`run`, `role`, ...: for listing and reaping."""


@record
class SandboxCapabilities:
    """What a backend enforces."""

    network_none: bool
    limits: Literal["hard", "process", "none"]
    """`hard`: cgroups; `process`: rlimits on each process; `none`: nothing."""
    isolated: bool
    """False only for `local`: commands run as the user, on the host."""


@record
class Preflight:
    """Is this backend ready here? Found out by trying."""

    ready: bool
    what: str
    """One sentence: what was tried and what came of it."""
    fix: str = ""
    """The command that mends it, where one is known."""


@record
class Difference:
    """What a candidate changed of the work tree, found out on the engine's side."""

    patch: bytes
    """A git diff with binary hunks against the base, paths sorted; empty where nothing changed."""
    changed: tuple[str, ...]
    """Paths in the patch, sorted; names that are no UTF-8 are surrogate-escaped."""
    dropped: Mapping[str, str]
    """Path -> why it is not in the patch: not allowed, a link, a device, a pipe, too large."""


@record
class Left:
    """A sandbox that is still there, whoever made it; for listing and reaping."""

    id: str
    backend: str
    owner: str
    """`host:pid:start` of the process that made it; empty where nobody says."""
    dead: bool
    """Its owner is known to have ended, or its time to live is over: `reap` removes it."""
    state: str
    """In the backend's own words: running, created, exited."""
    age_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Served(Protocol):
    """A process in a sandbox that stays, and answers a line with a line."""

    async def ask(self, line: bytes, *, timeout_seconds: float, limit: int = 1 << 20) -> bytes:
        """Write `line` (without line end) and wait for one line of at most `limit` bytes; one question at a time.

        Raises:
            ChannelLost: the process ended, sent too much, or did not answer in time: the candidate's doing.
            SandboxInfraError: backend or sandbox failed by themselves.
        """
        ...

    async def close(self) -> None:
        """End it and all it started; idempotent, shielded from cancellation."""
        ...


class Sandbox(Protocol):
    """One live, single-use sandbox."""

    @property
    def id(self) -> str: ...

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
        """Run `argv` (no shell) and wait for it; its children die with it or with the timeout.

        Output over `output_limit` bytes a stream is cut in the middle, with the count in the result.

        Raises:
            SandboxInfraError: the backend failed; the sandbox is to be thrown away.
        """
        ...

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files; paths are relative to `workdir`, parents are made."""
        ...

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """Read one regular file, relative to `workdir` or absolute inside.

        Raises:
            FileNotFoundError: it is not there.
            PermissionError: it is a link, a device, a pipe or a folder.
            ValueError: it is longer than `max_bytes`.
            SandboxInfraError: the backend failed.
        """
        ...

    async def serve(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Served:
        """Start `argv` (no shell) and leave it running; standard error is dropped.

        Where a backend runs commands one at a time, `exec` is refused while a served process is open.

        Raises:
            SandboxInfraError: the backend failed, or the sandbox is closed.
        """
        ...

    async def diff(
        self, base: str | None = None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
    ) -> Difference:
        """What the work tree differs in from the tar file `base` (None: the spec's archive; neither: an empty tree).

        The tree is read out and compared on the engine's side: no git, hook, filter or configuration of the
        candidate runs. `allow` are glob patterns over whole paths (`*` also matches `/`); files beyond
        `max_bytes` in all are dropped, and said to be.

        Raises:
            SandboxInfraError: the tree cannot be read out.
        """
        ...

    async def sweep(self) -> int:
        """Kill every process of the candidate; how many there were, as far as the backend can count."""
        ...

    async def alive(self) -> bool:
        """Can commands still be run in it? Asks the backend, not the candidate."""
        ...

    async def close(self) -> None:
        """Kill and remove everything; idempotent, shielded from cancellation."""
        ...


class SandboxProvider(Protocol):
    """Makes sandboxes."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> SandboxCapabilities: ...

    @property
    def python(self) -> str:
        """Path, inside, of the interpreter that has pytest, pytest-json-report and coverage."""
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """A ready sandbox, or an error and nothing left behind.

        Raises:
            SandboxInfraError: it could not be made.
            PolicyUnsupported: the backend cannot enforce the spec.
        """
        ...

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """A clean sandbox of this spec out of the pool, else one made now; the pool refills in the background.

        A sandbox is handed out once, whichever way it came, and closed by who got it. Labels are not part of
        what makes two specs equal.

        Raises:
            SandboxInfraError, PolicyUnsupported: as `create`.
        """
        ...

    async def listed(self) -> tuple[Left, ...]:
        """Every sandbox of this backend on this machine that selfplay made, living owners' too.

        Raises:
            SandboxInfraError: the backend does not answer.
        """
        ...

    async def reap(self, *, older_than_seconds: float | None = None) -> tuple[str, ...]:
        """Remove what dead owners left behind, in any state, with its volumes; ids of what was removed.

        Touches nothing foreign and nothing of a living owner. With `older_than_seconds`, only what is older.

        Raises:
            SandboxInfraError: the backend does not answer.
        """
        ...

    @classmethod
    async def preflight(cls, *, recipe: Recipe | None = None) -> Preflight:
        """Is this backend ready here? Makes a sandbox, looks around in it and removes it."""
        ...

    async def aclose(self) -> None:
        """Close every sandbox made here; idempotent."""
        ...
