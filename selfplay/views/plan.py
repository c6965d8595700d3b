"""What a run would play, before anything is spent: names, values, and the formulas behind them.

A preset of a paper says in its head where it differs from what was published, as a table in its comments with the
columns what, paper (or code), here and why; `differences` reads it.

Not here: what the rows say (`build.plan`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

from selfplay.types import record


@record
class PlanRow:
    """One line of a plan."""

    section: str
    """`play`, `rewards`, `loss`, ...: rows of one section stand together."""
    name: str
    value: str
    """With its constants: `8 attempts a task`, `-1 invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s`."""
    note: str = ""
    """Where it comes from, or why; may be empty."""


@record
class Difference:
    """Where a preset is not as published."""

    what: str
    paper: str
    ours: str
    reason: str


def differences(text: str) -> tuple[Difference, ...]:
    """Those that a preset's `text` states; a row without a name goes on with the one above.

    >>> differences("#  what  | paper | here | why\\n#  batch | 256   | 16   | two\\n#        |       |      | cores")
    (Difference(what='batch', paper='256', ours='16', reason='two cores'),)
    """
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.removeprefix("#").split("|")] if line.startswith("#") else []
        if len(cells) != len(fields(Difference)):
            inside = False
        elif cells[0] == "what":
            inside = True
        elif inside and cells[0]:
            found.append(cells)
        elif inside and found:
            found[-1] = [" ".join(filter(None, pair)) for pair in zip(found[-1], cells, strict=True)]
    return tuple(Difference(what=row[0], paper=row[1], ours=row[2], reason=row[3]) for row in found)


def differences_table(rows: Sequence[Difference]) -> Table:
    """The differences for people."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("not as published", "paper", "ours", "reason"):
        table.add_column(title, overflow="fold")
    for row in rows:
        cells = (Text(cell) for cell in (row.what, row.paper, row.ours))
        table.add_row(*cells, Text(row.reason, style="dim"))
    return table


def plan_table(rows: Sequence[PlanRow]) -> Table:
    """The plan for people."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section, members in groupby(rows, key=lambda row: row.section):
        for index, row in enumerate(members):
            words = Text(row.value)
            if row.note:
                words.append(f" · {row.note}", style="dim")
            table.add_row(Text(section if index == 0 else ""), Text(row.name), words)
    return table


def plan_data(rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """The plan as JSON."""
    return [{"section": r.section, "name": r.name, "value": r.value, "note": r.note} for r in rows]
