"""`selfplay init`: a project folder whose roles, preset and sandbox work as they are.

Not here: what a project is (`project`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.project import Project

PRESETS: Mapping[str, str] = {"code": "quickstart", "echo": "demo", "search": "search-quickstart"}
"""Game -> the preset that a project begins with."""

IGNORED = b"# What came out: selfplay status\n*\n!.gitignore\n"


@click.command("init", short_help="Make a project folder.")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False), default=Path("."))
@click.option("--game", type=click.Choice(tuple(PRESETS)), default="code", show_default=True, help="What is played.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@common
def command(session: Session, folder: Path, *, game: str, force: bool) -> None:
    """Make a project in FOLDER [default: here]: a preset, its two roles, the sandbox, and selfplay.toml with every key.

    All of it works as it is; what is there is left as it is. In selfplay.toml every key is commented out, with its
    meaning: it holds what all runs of the project are to have.

    \b
    Examples:
      selfplay init my-project
      selfplay init --game echo
    """
    from selfplay.cli.copying import write

    texts = dict(_files(session.project, game))
    written, skipped = write(folder, texts, force=force)
    if session.json:
        session.answer("init", {"folder": str(folder.resolve()), "written": written, "skipped": skipped})
        return
    for name in texts:
        session.data.write(f"{'skip ' if name in skipped else 'write'}  {folder / name}\n")
    there = f"cd {folder} && " if folder != Path(".") else ""
    session.say(f"\n  ready?    {there}selfplay doctor\n  play      {there}selfplay run {PRESETS[game]}")


def _files(project: Project, game: str) -> Iterator[tuple[str, bytes]]:
    """Place in the project -> content."""
    from selfplay.cli.copying import entry, files_of
    from selfplay.config import load
    from selfplay.project import FOLDERS, Kind, Project

    shipped = Project(folder=None, shipped=project.shipped, runs=project.runs)
    config = load(PRESETS[game], project=shipped, environ={})
    yield "selfplay.toml", _settings().encode()
    wanted: list[tuple[Kind, str]] = [("curriculum", PRESETS[game])]
    wanted += [("role", name) for name in dict.fromkeys((config.roles.proposer, config.roles.solver))]
    if game == "code":
        wanted += [("sandbox", one.name) for one in shipped.list_all("sandbox")]
    for kind, name in wanted:
        for at, path in files_of(entry(shipped, kind, name)).items():
            yield f"{FOLDERS[kind]}/{at}", path.read_bytes()
    yield "runs/.gitignore", IGNORED


def _settings() -> str:
    """selfplay.toml: every key, commented out, with its built-in value and its meaning."""
    from selfplay.config import Config
    from selfplay.config.reference import rows
    from selfplay.config.settings import toml_value

    lines = ["# Settings of all runs of this project; a preset, a variable or -s may say otherwise.", ""]
    table = ""
    for row in rows(Config()):
        head, key = row.key.split(".")
        if head != table:
            lines += [*([""] if table else []), f"[{head}]"]
            table = head
        value = "unset" if row.default is None else toml_value(row.default)
        lines.append(f"# {key} = {value}  # {row.meaning}")
    return "\n".join(lines) + "\n"
