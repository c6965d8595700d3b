"""What an agent can do between its turns: tools over a sandbox or a corpus.

A `Toolbox` is one episode's tools: made clean when a play begins, closed when it ends. A tool takes arguments that the
policy wrote and gives an `Answer` that the policy reads. Whatever the policy does wrong (no such tool, arguments that
do not fit, an edit that matches twice, a command that runs out of time) is an answer that says so; only the machine's
failures are errors.

Not here: how calls are written in a reply (`rollout.calls`), when a play ends (`rollout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from selfplay.types import record


@record
class ToolSpec:
    """What the policy is told of a tool."""

    name: str
    text: str
    """What it does, in words."""
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments: an object with `properties` and `required`."""
    body: Literal["lines", "replacement"] = "lines"
    """How a fenced call writes the required arguments, in their order: a line each, the last takes all lines that are
    left; `replacement`: the last two are the halves of a SEARCH/REPLACE block."""


@record
class Call:
    """A call as the policy wrote it."""

    name: str
    arguments: Mapping[str, Any]


@record
class Answer:
    """What a call came to."""

    text: str
    """What the policy reads."""
    exit_code: int | None = None
    """Of a command; None for other tools, and where a command was killed."""
    refused: bool = False
    """The call was not carried out: no such tool, or arguments that do not fit."""
    product: Mapping[str, Any] | None = None
    """What the play hands over, JSON; the play ends with it (`submit`, `answer`)."""
    seconds: float = 0.0


class Tool(Protocol):
    """One tool of one episode."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, Any]) -> Answer:
        """Carry a call out; `arguments` fit the schema.

        Raises:
            SandboxInfraError: the machine failed; nothing follows for the policy.
        """
        ...


class Toolbox(Protocol):
    """The tools of one episode."""

    @property
    def specs(self) -> Sequence[ToolSpec]: ...

    async def call(self, call: Call) -> Answer:
        """Carry a call out; one at a time.

        Raises:
            SandboxInfraError, RetrievalFailed: the machine failed; nothing follows for the policy.
        """
        ...

    async def aclose(self) -> None:
        """Close what was opened for the episode; idempotent, shielded from cancellation."""
        ...


@record
class Allowance:
    """What one episode's tools may use."""

    command_seconds: float = 90.0
    """Longest single command."""
    output_chars: int = 10_000
    """Longest answer; the middle of a longer one is left out, with a count."""
    names: tuple[str, ...] = field(default=("bash", "edit", "create", "view", "search", "submit"))
    """Tools that are offered."""
