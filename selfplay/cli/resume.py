"""`selfplay resume`: let a paused process go on.

Not here: asking (`cli.steering`); a run that nobody plays goes on with `selfplay run --name NAME`.
"""

from __future__ import annotations

import click

from selfplay.cli import steering
from selfplay.cli.session import Session, common


@click.command("resume", short_help="Let a paused process go on.")
@click.argument("run")
@common
def command(session: Session, run: str) -> int:
    """Let the process that plays RUN go on after `selfplay pause RUN`.

    A run that nobody plays goes on with `selfplay run --name RUN`.

    \b
    Examples:
      selfplay resume last
    """
    return steering.ask(session, run, "resume", {})
