"""`selfplay stop`: ask a running process to close its books.

Not here: asking (`cli.steering`), stopping (`selfplay.control`, `loop`).
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from selfplay.cli import runs, steering
from selfplay.cli.session import Session, common


@click.command("stop", short_help="Ask a running process to close its books.")
@click.argument("run")
@click.option("--wait", is_flag=True, help="Return once the process has let go of the run.")
@common
def command(session: Session, run: str, *, wait: bool) -> int:
    """Ask the process that plays RUN to stop, as one Ctrl-C does: turns in flight end, nothing recorded is lost.

    The process ends with exit code 75, and the same run command goes on. A run that nobody plays is left as it is.

    \b
    Examples:
      selfplay stop last
      selfplay stop quickstart --wait
    """
    code = steering.ask(session, run, "stop", {}, idle=_idle)
    if wait:
        _wait(runs.find_run(run, project=session.project))
    return code


def _idle(folder: Path, state: str) -> str:
    return f"{folder.name}: it is not running ({state}), so there is nothing to stop"


def _wait(folder: Path) -> None:
    from selfplay.ledger.lock import holder

    while holder(folder) is not None:
        time.sleep(steering.EVERY)
