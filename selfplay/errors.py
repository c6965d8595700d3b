"""The errors a person sees: one sentence, a hint with the next command, and an exit code.

What goes wrong inside a rollout is a `types.Fault`, which is data; these end a command.

Example:
    >>> raise NotFound("no role `injektor`", hint="did you mean `injector`? All roles: selfplay ls roles")
    Traceback (most recent call last):
    selfplay.errors.NotFound: no role `injektor`
"""

from __future__ import annotations


class SelfplayError(Exception):
    """What a person can act on: one sentence, and a hint with the next command.

    `exit_code` is the command line's (docs: README, exit codes); `kind` is the JSON error's closed vocabulary.
    """

    exit_code = 1
    kind = "internal"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(SelfplayError):
    """Wrong usage or configuration."""

    exit_code = 2
    kind = "config"


class NotFound(UserError):
    """A run, preset, role, model or package of that name does not exist."""

    kind = "not_found"


class NotReady(SelfplayError):
    """This machine lacks something: an engine, a tool, disk, a download."""

    exit_code = 3
    kind = "not_ready"


class Held(SelfplayError):
    """The run is held by another live process."""

    exit_code = 4
    kind = "held"


class RunFailed(SelfplayError):
    """The run stopped because going on would be wrong: damaged file, drift, no progress."""

    exit_code = 1
    kind = "fault"


class Ambiguous(UserError):
    """A short form that stands for more than one thing."""

    kind = "ambiguous"
