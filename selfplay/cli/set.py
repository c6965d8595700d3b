"""`selfplay set`: other values of settings of a running process, from its next step on.

Not here: which keys (`selfplay.control`), asking (`cli.steering`).
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from selfplay.cli import steering
from selfplay.cli.session import Session, common
from selfplay.errors import UserError


@click.command("set", short_help="Change settings of a running process.")
@click.argument("run")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@common
def command(session: Session, run: str, pairs: tuple[str, ...]) -> int:
    """Give settings of the process that plays RUN other values, from its next step on.

    It is recorded, and kept in config.toml. Keys: run.steps, run.save_every, run.keep_saves, alarms.stop. Any other
    either makes the run another one, which --fork is for, or is read as a launch begins.

    \b
    Examples:
      selfplay set last run.steps=40
      selfplay set quickstart run.save_every=5 'alarms.stop=["agreement", "entropy"]'
    """
    sets = dict(_pair(text) for text in pairs)

    def check(folder: Path) -> None:
        from selfplay import control
        from selfplay.config import from_run

        config = from_run(folder, project=session.project, environ={})
        control.changed(config, sets, project=session.project, folder=folder)

    instead = "".join(f" -s {shlex.quote(f'{key}={value}')}" for key, value in sets.items())
    return steering.ask(session, run, "set", sets, check=check, instead=instead)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"`{text}` has no `=`", hint="selfplay set RUN run.steps=20")
    return key.strip(), value.strip()
