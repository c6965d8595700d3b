"""`selfplay cp`: a copy of a role, a preset or a sandbox in the project, to be edited.

Not here: which one is found first (`project`).
"""

from __future__ import annotations

from pathlib import Path

import click

from selfplay.cli.runs import check_name
from selfplay.cli.session import Session, common
from selfplay.errors import UserError


@click.command("cp", short_help="Copy a role, a preset or a sandbox into the project.")
@click.argument("kind")
@click.argument("name")
@click.argument("new", required=False)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@common
def command(session: Session, kind: str, name: str, new: str | None, *, force: bool) -> None:
    """Copy a role, a preset or a sandbox into the project (here, where there is none), as NEW or under its own name.

    KIND is role, preset or sandbox. Under its own name the copy is found before the shipped one.

    \b
    Examples:
      selfplay cp role injector
      selfplay cp preset quickstart mine
    """
    from selfplay.cli.copying import entry, files_of, kind_of, renamed, write
    from selfplay.project import FOLDERS

    which = kind_of(kind)
    found = entry(session.project, which, name)
    to = (session.project.folder or Path.cwd()) / FOLDERS[which]
    texts = renamed(files_of(found), name, check_name(new) if new is not None else name)
    if found.path.parent.resolve() == to.resolve() and new in (None, name):
        raise UserError(f"`{name}` is the project's own already ({found.path})", hint="give the copy a name of its own")
    if not force and (there := [at for at in texts if (to / at).exists()]):
        raise UserError(f"{to / there[0]} is there already", hint="give the copy another name, or add --force")
    written, _ = write(to, texts, force=force)
    if session.json:
        session.answer("cp", {"kind": which, "name": new or name, "folder": str(to), "written": written})
        return
    for at in written:
        session.data.write(f"{to / at}\n")
