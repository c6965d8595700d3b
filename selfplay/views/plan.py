"""What a run would play, before anything is spent: names, values, and the formulas behind them.

Not here: what the rows say (`build.plan`).
"""

from __future__ import annotations

from collections.abc import Sequence
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
            table.add_row(section if index == 0 else "", row.name, words)
    return table


def plan_data(rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """The plan as JSON."""
    return [{"section": r.section, "name": r.name, "value": r.value, "note": r.note} for r in rows]
