"""`selfplay pause`: let a running process begin nothing new.

Not here: asking (`cli.steering`), pausing (`selfplay.control`, `pools`).
"""

from __future__ import annotations

import click

from selfplay.cli import steering
from selfplay.cli.session import Session, common


@click.command("pause", short_help="Let a running process begin nothing new.")
@click.argument("run")
@common
def command(session: Session, run: str) -> int:
    """Let the process that plays RUN begin no reply until `selfplay resume RUN`.

    What is being sampled or verified ends, and is recorded. The process stays and keeps its memory; sandboxes of plays
    that have begun stay too. A pause ends with its process: what is launched anew is not paused.

    \b
    Examples:
      selfplay pause last
    """
    return steering.ask(session, run, "pause", {})
