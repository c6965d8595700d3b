"""`selfplay config`: every setting, its value, and where it came from.

Not here: what the keys mean (`config.tables`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.run import DEFAULT
from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.config.reference import Row


@click.command("config", short_help="Every setting, its value and where it came from.")
@click.argument("preset", required=False, metavar="[PRESET|FILE.toml|RUN]")
@click.option("--all", "everything", is_flag=True, help="Built-in values too, each with its meaning.")
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting; repeatable.")
@common
def command(session: Session, preset: str | None, everything: bool, sets: tuple[str, ...]) -> None:
    """Every setting, its value, and where it came from.

    Order, last wins: built-in, selfplay.toml, the preset or file, environment SELFPLAY_<TABLE>_<KEY>, -s.

    \b
    Examples:
      selfplay config demo
      selfplay config --all
    """
    config = _load(session, preset or DEFAULT, sets)
    from selfplay.config.reference import rows

    shown = [row for row in rows(config) if everything or row.origin != "built-in" or session.json]
    if session.json:
        keys = ("key", "value", "origin", "default", "expected", "meaning", "affects_results")
        data = {"digest": config.digest, "settings": [{key: getattr(row, key) for key in keys} for row in shown]}
        session.answer("config", data)
        return
    _print(session, shown, meanings=everything)
    if not everything:
        session.say("the other keys have their built-in values: selfplay config --all")


def _print(session: Session, shown: Sequence[Row], *, meanings: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console = session.console()
    wide = max((len(row.key) for row in shown), default=0)
    for row in shown:
        value = "unset" if row.value is None else str(row.value)
        line = Text(f"{row.key:<{wide}}  ", style="bold")
        line.append(f"{value:<24}", style="not bold")
        line.append(f"  {row.origin}", style="not bold dim")
        console.print(line)
        if meanings:
            star = "" if row.affects_results else " (may change between launches)"
            console.print(Padding(Text(f"{row.expected}. {row.meaning}{star}", style="dim"), (0, 0, 0, 4)))


def _load(session: Session, name: str, sets: tuple[str, ...]) -> Config:
    from selfplay import config as configs
    from selfplay.errors import NotFound

    # note: a folder is never a preset's file.
    if "/" in name and Path(name).expanduser().is_dir():
        folder = runs.find_run(name, project=session.project)
        return configs.from_run(folder, project=session.project, sets=sets)
    try:
        return configs.load(name, project=session.project, sets=sets)
    except NotFound as error:
        if "/" in name:
            raise
        folder = session.project.runs / name
        # note: the settings are whole where the ledger, by which a run is found, is gone.
        if not (folder / "config.toml").is_file():
            try:
                folder = runs.find_run(name, project=session.project)
            except NotFound:
                raise error from None
        return configs.from_run(folder, project=session.project, sets=sets)
