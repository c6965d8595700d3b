"""The command line: `main`, and a group that loads a command's module when it is named.

Data goes to stdout, words to stderr. Every command takes `--json`. Exit codes: 0 done, 1 failed, 2 usage or
configuration, 3 machine not ready, 4 run held by another process, 75 stopped and resumable, 130/143 by signal.

Not here: what a command does (its module), how errors are shown (`cli.failures`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from selfplay import __version__
from selfplay.cli import failures
from selfplay.cli.session import Session, common

COMMANDS: Mapping[str, str] = {
    "run": "Play and learn; the same command again resumes.",
    "demo": "The toy game learns on the CPU in a minute (= run demo).",
    "status": "Where runs stand; without RUN, one row each.",
    "watch": "A run's live screen, from any terminal.",
    "inspect": "Read proposals, attempts and what was decided about them.",
    "frontier": "How hard a run's tasks are for its solver, over time.",
    "why": "Why a task was chosen, how its solve rate moved, what came of it.",
    "report": "A run as one HTML file that needs nothing beside it.",
    "eval": "How good are weights on tasks they never learnt from?",
    "replay": "Do a closed step again, and compare with its records.",
    "sql": "Ask a run's ledger in SQL, read-only.",
    "reverify": "Judge a run's attempts again with today's verifier.",
    "export": "A run's tasks as rows for other tools.",
    "check": "Is a run as it was recorded? Every digest, reference, id and sum.",
    "doctor": "Is this machine ready?",
    "sandbox": "Images, leftovers, checks and latencies of sandboxes.",
    "corpus": "Documents to search in: add, list, search.",
    "verify": "Try to cheat the verifier: attacks and honest repairs.",
    "ls": "Runs, presets, roles, sandboxes, and where they come from.",
    "config": "Every setting, its value and where it came from.",
    "schema": "JSON Schema of the configuration and of `--json` outputs.",
}
"""Name -> one line of help. A command `NAME` is `selfplay.cli.NAME:command`."""

EPILOG = """\b
Examples:
  selfplay demo     a toy game, one minute, no sandbox
  selfplay run      the preset quickstart: bugs in a real package
\b
Exit codes:
  0  done                          4        the run is held by another process
  1  failed                        75       stopped, the same command resumes
  2  wrong usage or configuration  130/143  interrupted, terminated; resumable
  3  this machine is not ready
"""


class LazyGroup(click.Group):
    """Knows the names of its commands and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None where there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"selfplay.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from `COMMANDS` alone: nothing is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="selfplay", message="%(prog)s %(version)s")
@common
def group(session: Session) -> None:
    """One language-model policy plays both sides of a game and learns from the verdicts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every error has been shown by then."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(json="--json" in words)
    try:
        with session:
            outcome = group.main(args=words, prog_name="selfplay", standalone_mode=False, obj=session)
            sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 (the boundary: everything that ends a command is shown here)
        return failures.show(error, session=session)
    return outcome if isinstance(outcome, int) else 0
