"""`control.jsonl` beside a ledger: what people ask of a running process, a line each.

A line names the launch that it is for, so that what was asked of a process that is gone is never done by the next one.
Lines are appended whole, in one write; whoever holds the run reads them and records those that it acted on in the
table `control`. Nothing else is changed by a line: no row that two runs are compared by.

Not here: acting on a line (`selfplay.control`), who may ask for what (`cli.steering`).

Example:
    >>> line = send(folder, holder(folder), action="pause", arguments={})  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from selfplay.errors import NotReady
from selfplay.ledger.lock import Holder
from selfplay.ledger.records import ControlRow, Launch
from selfplay.types import record

NAME = "control.jsonl"

Action = Literal["stop", "pause", "resume", "set"]
ACTIONS: tuple[Action, ...] = ("stop", "pause", "resume", "set")


@record
class Line:
    """One thing that was asked for."""

    id: str
    """Of this line; the row that records it has it among its arguments."""
    action: Action
    arguments: Mapping[str, Any]
    pid: int
    """With `started_at`: the launch that it is for."""
    started_at: float

    def is_for(self, held: Holder) -> bool:
        """Is it for that launch?"""
        return (self.pid, self.started_at) == (held.pid, held.started_at)


def send(folder: Path, held: Holder, *, action: Action, arguments: Mapping[str, Any]) -> Line:
    """Append a line for the launch that holds the run in `folder`.

    Raises:
        NotReady: it cannot be written.
    """
    line = Line(id=uuid.uuid4().hex, action=action, arguments=arguments, pid=held.pid, started_at=held.started_at)
    row = {name: getattr(line, name) for name in ("id", "action", "arguments", "pid", "started_at")}
    data = (json.dumps(row, sort_keys=True) + "\n").encode()
    try:
        # note: one write to a file that is open for appending: two who ask at once do not mix their lines.
        fd = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
    except OSError as error:
        raise NotReady(f"cannot write {folder / NAME}: {error.strerror}", hint=f"look: ls -ld {folder}") from error
    return line


def read(folder: Path, *, since: int) -> tuple[tuple[Line, ...], int]:
    """The whole lines behind byte `since`, and the byte to read from next. A line that is none is left out."""
    try:
        with (folder / NAME).open("rb") as file:
            file.seek(since)
            data = file.read()
    except FileNotFoundError:
        return (), since
    whole = data[: data.rfind(b"\n") + 1]
    found = tuple(line for row in whole.splitlines() if (line := _line(row)) is not None)
    return found, since + len(whole)


def paused(rows: Sequence[ControlRow], launch: Launch | None) -> bool:
    """Was the launch asked to pause, by the last that was recorded since it began?"""
    since = launch.started_at if launch is not None else 0.0
    asked = [row.action for row in rows if row.action in ("pause", "resume") and row.at >= since]
    return bool(asked) and asked[-1] == "pause"


def _line(row: bytes) -> Line | None:
    try:
        given = json.loads(row)
        line = Line(**given)
    except (ValueError, TypeError):
        return None
    fits = line.action in ACTIONS and isinstance(line.arguments, dict) and isinstance(line.id, str)
    return line if fits else None
