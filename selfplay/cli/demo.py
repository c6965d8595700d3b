"""`selfplay demo`: the toy game, short for `selfplay run demo`."""

from __future__ import annotations

import click

from selfplay.cli.run import Options, options, play
from selfplay.cli.session import Session, common


@click.command("demo", short_help="The toy game learns on the CPU in a minute.")
@options
@common
def command(session: Session, **given: object) -> int:
    """The toy game learns on the CPU in a minute; short for `selfplay run demo`.

    \b
    Examples:
      selfplay demo
      selfplay demo --new --steps 10
    """
    return play(session, Options.of("demo", given))
