"""`selfplay show`: a role, a preset or a sandbox as it is found here.

Not here: listing them (`cli.ls`), copying one (`cli.cp`).
"""

from __future__ import annotations

import click

from selfplay.cli.session import Session, common


@click.command("show", short_help="A role, a preset or a sandbox, as it is found here.")
@click.argument("kind")
@click.argument("name")
@common
def command(session: Session, kind: str, name: str) -> None:
    """Print the files of a role, a preset or a sandbox, as it is found from here: the project's before the shipped one.

    KIND is role, preset or sandbox.

    \b
    Examples:
      selfplay show role injector
      selfplay show preset quickstart
    """
    from selfplay.cli.copying import entry, files_of, kind_of

    found = entry(session.project, kind_of(kind), name)
    texts = {at: path.read_text(encoding="utf-8", errors="replace") for at, path in files_of(found).items()}
    if session.json:
        data = {"kind": found.kind, "name": name, "origin": found.origin, "path": str(found.path), "files": texts}
        session.answer("show", data)
        return
    for at, text in texts.items():
        if len(texts) > 1:
            session.data.write(f"# --- {at} ---\n")
        session.data.write(text if text.endswith("\n") else f"{text}\n")
    hides = f", in place of {found.hides}" if found.hides is not None else ""
    session.say(f"{found.origin}: {found.path}{hides}")
