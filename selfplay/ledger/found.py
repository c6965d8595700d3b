"""What a check finds: sentences, few of them kept and all of them counted.

Not here: the checks (`check.py`, `check_learning.py`, `selfplay.audit`).
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable
from typing import Any

from selfplay.errors import RunFailed
from selfplay.ledger.damage import said
from selfplay.types import record

MOST = 5
"""Problems of one check that are told; all are counted."""


@record
class Checked:
    """One check and what it found."""

    name: str
    what: str
    """What was looked at, in words."""
    count: int
    """How many."""
    problems: tuple[str, ...] = ()
    """The first `MOST`, a sentence each."""
    num_problems: int = 0
    notes: tuple[str, ...] = ()
    """Worth knowing, not wrong."""
    seconds: float = 0.0


class Found:
    """Collects what one check finds."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.num_problems = 0
        self.count = 0
        """Things looked at."""

    def problem(self, sentence: str) -> None:
        """Count it, and keep it while there are few."""
        self.num_problems += 1
        if len(self.problems) < MOST:
            self.problems.append(sentence)

    def unless(self, fine: bool, sentence: str) -> None:
        """A problem where it is not `fine`."""
        if not fine:
            self.problem(sentence)


Check = Callable[[sqlite3.Connection, Found], None]
"""Looks at all things of one kind."""


def timed(name: str, what: str, check: Callable[[Found], None]) -> Checked:
    """Run one check; a damaged page, blob or name of a column that it meets is one of its problems."""
    found, began = Found(), time.monotonic()
    try:
        check(found)
    except (sqlite3.Error, zlib.error, ValueError, LookupError, TypeError) as error:
        found.problem(f"the file is damaged: {said(error)}")
    except RunFailed as error:
        found.problem(error.message)
    return Checked(
        name=name,
        what=what,
        count=found.count,
        problems=tuple(found.problems),
        num_problems=found.num_problems,
        notes=tuple(found.notes),
        seconds=time.monotonic() - began,
    )


def one(connection: sqlite3.Connection, sql: str, *given: Any) -> int:
    """The one whole number that `sql` gives."""
    return int(connection.execute(sql, given).fetchone()[0])
