"""`selfplay run --detach`: the run goes on in a process of its own; the answer comes once that process holds it.

There is no state in between to ask for: exit code 0 means that the ledger is open and the process plays; anything else
that it does not, with what it said. It is ended by `selfplay stop`, like any other.

Not here: playing (`cli.run`), watching (`cli.watch`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from selfplay.cli.session import Session, near
from selfplay.errors import Held, NotReady, RunFailed

EVERY = 0.05
"""Seconds between two looks at whether it holds the run."""
TOLD = 20
"""Last lines of what it said that are shown where it did not come so far."""


def detach(session: Session, words: Sequence[str], folder: Path) -> int:
    """Start `selfplay WORDS...`, wait until it holds the run in `folder`, and tell how to find it; the exit code.

    Raises:
        Held: a process plays it already.
        NotReady: its log cannot be written.
        RunFailed: it ended before it held the run.
    """
    _refuse_held(folder)
    aside = folder.parent / f".{folder.name}.log"
    if session.project_folder is not None:
        words = [*words, "--project", str(session.project_folder)]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        pid = _started(words, aside)
    except OSError as error:
        raise NotReady(f"cannot write {aside}: {error.strerror}", hint=f"look: ls -ld {folder.parent}") from error
    code = _ended(pid, folder)
    # note: only now, since a folder that holds anything is no place for a new run. What is open follows the name.
    to = folder / "logs" / f"detached_{pid}.txt"
    if (folder / "ledger.db").is_file():
        to.parent.mkdir(exist_ok=True)
        aside.replace(to)
    else:
        to = aside
    if code:
        said = to.read_text(encoding="utf-8", errors="replace").splitlines()[-TOLD:]
        raise RunFailed(f"the process ended with exit code {code}:\n\n" + "\n".join(said), hint=f"all it said: {to}")
    _tell(session, folder, pid=pid, log=to)
    return 0


def _started(words: Sequence[str], log: Path) -> int:
    """The process's id; a session of its own, so that no terminal ends it."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "selfplay", *words],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _refuse_held(folder: Path) -> None:
    """Before anything is started beside it."""
    from selfplay.ledger.lock import holder

    if (found := holder(folder) if folder.is_dir() else None) is not None:
        name = folder.name
        raise Held(
            f"run `{name}` is held by process {found.pid} on {found.host}",
            hint=f"watch it: selfplay watch {name}, or end it: selfplay stop {name}",
        )


def _ended(pid: int, folder: Path) -> int | None:
    """Wait until the process holds the run (None), or has ended: its exit code."""
    from selfplay.ledger.lock import holder

    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        found = holder(folder) if folder.is_dir() else None
        if found is not None and found.pid == pid and (folder / "ledger.db").is_file():
            return None
        time.sleep(EVERY)


def _tell(session: Session, folder: Path, *, pid: int, log: Path) -> None:
    name = folder.name
    if session.json:
        watch = f"selfplay status {name} --json"
        data = {"run": name, "pid": pid, "folder": str(folder), "log": str(log), "watch": watch}
        session.answer("launch", data, run=name)
        return
    session.say(f"{name}: played by process {pid}; what it says goes to {near(log)}")
    session.say(
        f"  watch     selfplay watch {name}\n  status    selfplay status {name}\n  stop      selfplay stop {name}"
    )
