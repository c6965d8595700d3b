"""What one invocation knows: the common options, the project, and where its output goes.

Not here: commands.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from selfplay.project import Project

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """One invocation of the command line."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        """Answer with the JSON envelope, errors included."""
        self.color: bool | None = None
        """False where colour was refused; None: as the terminal and `NO_COLOR` say."""
        self.project_folder: Path | None = None
        """`--project`."""
        self.run_folder: Path | None = None
        """Of the run a command works on; an unexpected error's traceback goes into its logs/."""
        self._data: TextIO | None = None
        self._importable: str | None = None

    @functools.cached_property
    def project(self) -> Project:
        """The project to work in; its modules can be imported, behind all that is installed.

        Raises:
            NotFound: `--project` or `SELFPLAY_PROJECT` names no folder.
        """
        from selfplay.project import find_project

        found = find_project(explicit=self.project_folder)
        # note: `module:function` in a setting may name one of them, whichever way selfplay was started.
        if found.folder is not None and str(found.folder) not in sys.path:
            self._importable = str(found.folder)
            sys.path.append(self._importable)
        return found

    @property
    def data(self) -> TextIO:
        """Where data goes."""
        return self._data or sys.stdout

    def claim_stdout(self) -> None:
        """From now on only `data` reaches stdout; what libraries and children print there goes to stderr."""
        if self._data is None:
            sys.stdout.flush()
            self._data = os.fdopen(os.dup(1), "w", encoding="utf-8")
            os.dup2(2, 1)

    def console(self, *, stderr: bool = False) -> Console:
        """For tables and words; 80 columns where the output is no terminal."""
        from rich.console import Console

        to = sys.stderr if stderr else self.data
        width = None if to.isatty() else int(os.environ.get("COLUMNS") or 80)
        no_color = True if self.color is False else None
        return Console(file=to, no_color=no_color, width=width, highlight=False, soft_wrap=False, emoji=False)

    def answer(self, command: str, data: Any, *, run: str | None = None) -> None:
        """Write `data` in its envelope."""
        from selfplay.views.envelope import emit, envelope

        emit(envelope(command, data, run=run), self.data)

    def say(self, text: str) -> None:
        """One line for people, to stderr."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def say_silent(self, silent: Mapping[str, str]) -> None:
        """What gave no answer and is left out of a list: name -> why."""
        for name, why in silent.items():
            self.say(f"left out: {name}: {why}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._data is not None and error is None:
            self._data.flush()
        if self._importable in sys.path:
            sys.path.remove(self._importable)


def near(path: Path | str) -> str:
    """`path` as one would type it here: relative where it lies below the current folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def common(function: Callable[P, R]) -> Callable[P, R]:
    """The options that the group and every command take; the command gets `session` as its first argument."""
    for option in (
        # note: click's own would keep the names of the first context that asked a command for it.
        click.help_option("-h", "--help"),
        click.option("--no-color", is_flag=True, expose_value=False, callback=_no_color, help="No colours."),
        click.option("--json", is_flag=True, expose_value=False, callback=_json, help="Answer in JSON, on stdout."),
        click.option(
            "--project",
            type=click.Path(path_type=Path),
            metavar="DIR",
            expose_value=False,
            callback=_project,
            help="The project's folder [default: the nearest one upwards].",
        ),
    ):
        function = option(function)
    return click.pass_obj(function)  # type: ignore[arg-type]


def _no_color(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).color = False


def _json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).json = True


def _project(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).project_folder = value
