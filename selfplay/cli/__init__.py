"""The command line: `main`, and a group that loads a command's module when it is named.

Data goes to stdout, words to stderr. Every command takes `--json`. Exit codes: 0 done, 1 failed, 2 usage or
configuration, 3 machine not ready, 4 run held by another process, 75 stopped and resumable, 130/143 by signal.

Not here: what a command does (its module), how errors are shown (`cli.failures`).
"""

from __future__ import annotations

import codecs
import gc
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from selfplay import __version__
from selfplay.cli import failures
from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Mapping[str, str] = {
    "run": "Play and learn; the same command again resumes.",
    "demo": "The toy game learns on the CPU in a minute (= run demo).",
    "init": "Make a project folder.",
    "status": "Where runs stand; without RUN, one row each.",
    "watch": "A run's live screen, from any terminal.",
    "stop": "Ask a running process to close its books.",
    "pause": "Let a running process begin nothing new.",
    "resume": "Let a paused process go on.",
    "set": "Change settings of a running process.",
    "inspect": "Read proposals, attempts and what was decided about them.",
    "frontier": "How hard a run's tasks are for its solver, over time.",
    "why": "Why a task was chosen, how its solve rate moved, what came of it.",
    "report": "A run as one HTML file that needs nothing beside it.",
    "plot": "Curves of one run or several, as SVG or in the terminal.",
    "compare": "Two runs side by side, on the same held-out tasks.",
    "eval": "How good are weights on tasks they never learnt from?",
    "study": "Ways to learn compared, with one budget and tasks that are opened once.",
    "play": "Take the seat of proposer or solver yourself.",
    "replay": "Do a closed step again, and compare with its records.",
    "sql": "Ask a run's ledger in SQL, read-only.",
    "reverify": "Judge a run's attempts again with today's verifier.",
    "serve": "A policy behind OpenAI's chat completions, every play recorded.",
    "export": "A run for other tools: tasks, plays, data sets, curves, logs.",
    "check": "Is a run as it was recorded, a project sound, a repository playable?",
    "repro": "What it takes to play a run again.",
    "clean": "What takes disk space, and what of it can go.",
    "doctor": "Is this machine ready?",
    "sandbox": "Images, leftovers, checks and latencies of sandboxes.",
    "corpus": "Documents to search in: add, list, search.",
    "verify": "Try to cheat the verifier: attacks and honest repairs.",
    "ls": "Runs, presets, roles, sandboxes, and where they come from.",
    "show": "A role, a preset or a sandbox, as it is found here.",
    "cp": "Copy a role, a preset or a sandbox into the project.",
    "config": "Every setting, its value and where it came from.",
    "schema": "JSON Schema of the configuration and of `--json` outputs.",
    "completion": "A script that completes commands and names in your shell.",
}
"""Name -> one line of help. A command `NAME` is `selfplay.cli.NAME:command`."""

COMPLETE = "_SELFPLAY_COMPLETE"
"""Set by a shell that asks for completions, see `selfplay completion`."""

EPILOG = """\b
Examples:
  selfplay demo            a toy game, one minute, no sandbox
  selfplay inspect last    what was proposed, tried and decided
  selfplay report last     all of it as one HTML file
  selfplay run             the preset quickstart: bugs in a real package
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
        if os.environ.get(COMPLETE):
            from selfplay.cli.completion import teach

            teach(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, from `COMMANDS` alone, and options."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

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
    _write_what_it_can()
    try:
        with session:
            outcome = group.main(args=words, prog_name="selfplay", standalone_mode=False, obj=session)
            sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 (the boundary: everything that ends a command is shown here)
        return failures.show(error, session=session)
    return outcome if isinstance(outcome, int) else 0


def _write_what_it_can() -> None:
    """A sign that stdout's encoding lacks becomes a `?`: a bar that cannot be drawn is no reason to fail."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and codecs.lookup(out.encoding).name != "utf-8" and out.errors in _FAIL:
        out.reconfigure(errors="replace")


_FAIL = ("strict", "surrogateescape")
"""Ways to handle such a sign that end the command; whoever chose another has it."""


def program() -> int:
    """`main`, as the last thing that a process does."""
    code = main()
    # note: an interpreter looks for garbage as it ends, 25 ms over what is imported by then; all of it goes anyway.
    gc.freeze()
    return code
