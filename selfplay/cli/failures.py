"""How a command ends when it did not end well: one sentence, a hint with the next command, an exit code.

Not here: which errors there are (`errors`), what raises them.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import click

from selfplay.cli.session import Session
from selfplay.errors import NotReady, SelfplayError, UserError

INTERRUPTED = 130


def show(error: BaseException, *, session: Session) -> int:
    """Say what `error` is, on stderr and with --json on stdout too, and return the exit code of its kind."""
    # click and rich turn a closed pipe into SystemExit(1); nobody reads on, which is no failure.
    if any(isinstance(part, BrokenPipeError) for part in (*chain(error), error.__context__)):
        _close_stdout()
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _say("error: interrupted")
        return 128 + signal.SIGINT
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not session.json:
        _say(error.format_message())
        return error.exit_code
    known = recognise(error) or _unexpected(error, session=session)
    _say(f"error: {known.message}" + (f"\n\nhint: {known.hint}" if known.hint else ""))
    if session.json:
        from selfplay.views.envelope import emit, error_envelope

        emit(error_envelope(known), session.data)
    return known.exit_code


def recognise(error: BaseException) -> SelfplayError | None:
    """The error a person can act on: itself, one it carries, a full disk, wrong usage; None for anything else."""
    for part in chain(error):
        if isinstance(part, SelfplayError):
            return part
        if isinstance(part, OSError) and part.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" ({part.filename})" if part.filename else ""
            return NotReady(f"the disk is full{where}", hint="make room, then type the same command again")
        if isinstance(part, click.ClickException):
            return _usage(part)
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """`error`, the members of a group, and its causes, each once, nearest first."""
    waiting, seen = [error], set()
    while waiting:
        part = waiting.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, BaseExceptionGroup):
            waiting.extend(part.exceptions)
        if part.__cause__ is not None:
            waiting.append(part.__cause__)


def _usage(error: click.ClickException) -> UserError:
    context = getattr(error, "ctx", None)
    command = context.command_path if isinstance(context, click.Context) else "selfplay"
    text = error.format_message().strip().rstrip(".")
    message = text[:1].lower() + text[1:]
    possible: list[str] = []
    if isinstance(error, click.NoSuchOption):
        message, possible = f"no option `{error.option_name}`", list(error.possibilities or ())
    elif isinstance(context, click.Context) and message.startswith("no such command"):
        from selfplay.cli import COMMANDS
        from selfplay.project import did_you_mean

        name = text.split("'")[1] if "'" in text else text
        message = f"no command `{name}`"
        return UserError(message, hint=f"{did_you_mean(name, COMMANDS)}All commands: selfplay --help")
    near = f"did you mean `{possible[0]}`? " if possible else ""
    return UserError(message, hint=f"{near}Usage: {command} --help")


def _unexpected(error: BaseException, *, session: Session) -> SelfplayError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = " ".join(str(error).split())
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    file = _write_traceback(error, session=session)
    hint = f"the traceback is in {file}; please report it" if file is not None else "please report it"
    if file is None:
        traceback.print_exception(error, file=sys.stderr)
    return SelfplayError(f"unexpected {words[:300]}{where}", hint=hint)


def _write_traceback(error: BaseException, *, session: Session) -> Path | None:
    from selfplay.cache import cache_folder

    run = session.run_folder
    folder = (run if run is not None and run.is_dir() else cache_folder()) / "logs"
    file = folder / f"crash_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError:
        return None
    return file


def _say(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _close_stdout()


def _close_stdout() -> None:
    # Python flushes at exit once more and would complain about the pipe that nobody reads.
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2) if not sys.stderr.isatty() else (1,):
        os.dup2(null, stream)
