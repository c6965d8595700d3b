"""`selfplay ls`: runs, presets, roles, sandboxes, and where each comes from; alarms and export formats when asked for.

Not here: what is in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common, near
from selfplay.project import FOLDERS, LISTINGS, Entry

KINDS = ("runs", *LISTINGS.values())
SINGULAR = {"roles": "role", "presets": "preset", "sandboxes": "sandbox"}
ALARMS = "alarms"
FORMATS = "formats"
"""These two are listed only where asked for: no project adds one."""


@click.command("ls", short_help="Runs, presets, roles, sandboxes, and where they come from.")
@click.argument("kind", required=False, type=click.Choice((*KINDS, ALARMS, FORMATS)))
@common
def command(session: Session, kind: str | None) -> None:
    """Runs, presets, roles, sandboxes, and where each comes from.

    `ls alarms`: what is watched while a run plays; `ls formats`: what it can be exported to, those of packages too.

    \b
    Examples:
      selfplay ls
      selfplay ls roles --json
      selfplay ls formats
    """
    found = {name: _rows(session, name) for name in ((kind,) if kind else KINDS)}
    if session.json:
        session.answer("ls", found)
        return
    for name, rows in found.items():
        if kind is None:
            session.console().print(f"[bold]{name}[/]")
        _print(session, rows)
        if not rows:
            session.say(f"no {name} here" + (": selfplay run starts one" if name == "runs" else ""))
    if (there := found.get("runs")) is not None and there:
        session.say(f"  look      selfplay status {there[0]['name']}")
    if kind in SINGULAR and found[kind]:
        session.say(f"  look      selfplay show {SINGULAR[kind]} {found[kind][0]['name']}")


def _rows(session: Session, kind: str) -> list[dict[str, Any]]:
    if kind == ALARMS:
        from selfplay.alarms import ALARMS as alarms

        return [{"name": name, "about": alarm.about, "fix": alarm.fix} for name, alarm in alarms.items()]
    if kind == FORMATS:
        return list(_formats())
    project = session.project
    if kind == "runs":
        return [
            {"name": run.name, "state": _state(run), "path": str(run), "written": int(runs.written(run))}
            for run in runs.all_runs(project)
        ]
    singular = next(key for key in FOLDERS if LISTINGS[key] == kind)
    return [_entry(entry) for entry in project.list_all(singular)]


def _formats() -> Iterator[dict[str, Any]]:
    """Every export format; of one that cannot be loaded, why."""
    from selfplay.errors import SelfplayError
    from selfplay.exports import seam

    added = seam.plug_ins()
    for name in seam.names():
        try:
            about = seam.find(name).about
        except SelfplayError as error:
            about = error.message
        yield {"name": name, "origin": added[name].value if name in added else "shipped", "about": about}


def _state(run: Path) -> str:
    """As `selfplay status` shows it; `unreadable` where the ledger is damaged."""
    from selfplay.cli.status import look
    from selfplay.errors import SelfplayError

    try:
        return look(run).shown
    except SelfplayError:
        return "unreadable"


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "origin": entry.origin,
        "path": str(entry.path),
        "hides": str(entry.hides) if entry.hides is not None else None,
        "about": entry.about,
    }


def _print(session: Session, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from selfplay.views.words import duration

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        if "written" in row:
            ago = duration(max(0.0, time.time() - row["written"]))
            cells = (f"{row['state']}, {ago} ago", near(row["path"]))
        elif "fix" in row:
            cells = ("", f"{row['about']}\nto do: {row['fix']}")
        else:
            hides = f" (hides {near(row['hides'])})" if row.get("hides") else ""
            cells = (row["origin"], f"{row['about']}{hides}")
        # note: as text, for a name may hold what would be read as markup.
        table.add_row(*(Text(cell) for cell in (f"  {row['name']}", *cells)))
    session.console().print(table)
