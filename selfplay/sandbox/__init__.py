"""How commands are isolated: one contract, one file a backend (`docker`, `bubblewrap`, `local`).

A sandbox is single-use: created clean, used for one candidate, closed. What the candidate does to
itself (timeout, out of memory, kills its own processes) is a `Result`; what the machine or the
backend does is a `SandboxInfraError`, from which no reward may follow.

Not here: what is run in it (`games`), and its recipes (`sandboxes/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol

from selfplay.errors import SelfplayError
from selfplay.types import Result, record


class SandboxInfraError(SelfplayError):
    """Backend or machine failed: no sample, retried within bounds."""

    exit_code = 3
    kind = "fault"


class PolicyUnsupported(SelfplayError):
    """The backend cannot enforce what the spec asks; refused, never weakened in silence."""

    exit_code = 2
    kind = "config"


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

    async def reap(self) -> tuple[str, ...]:
        """Remove what dead owners left behind; ids of what was removed. Touches nothing foreign."""
        ...

    async def aclose(self) -> None:
        """Close every sandbox made here; idempotent."""
        ...
