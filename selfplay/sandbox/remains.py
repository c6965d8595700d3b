"""What a command on the host leaves: its processes, known by a mark in their environment, and the folder it ran in.

Covered: processes that left their process group; folders that the candidate shut (`chmod 0 d`), which only root gets
into as they are, or made deeper than Python's stack.

Not covered: processes that cleaned their environment, and files that only root may remove (`chattr +i`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

OWNER = "owner"
"""The file that says whose a folder is; without it nobody would find what is left."""
_TRIES = 5
"""A process that was just told to die may still have made a file."""
_SECONDS = 60.0
_LOOKS = 200
_BETWEEN_LOOKS = 0.002
"""Seconds. A killed process is found until the kernel has taken its memory away."""


def end(folder: Path, *, mark: str) -> bool:
    """End the processes with `mark` and remove `folder`; False where some of it is still there."""
    for _ in range(_TRIES):
        sweep(mark)
        _remove(folder)
        if not folder.exists():
            return True
        _open(folder)
    return False


def _remove(folder: Path) -> None:
    """Remove what can be removed; `OWNER` only when all else is gone."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name != OWNER:
                _remove_one(path)
        # note: not where the folder itself would stay, for then it would be nobody's.
        if {path.name for path in folder.iterdir()} <= {OWNER} and os.access(folder.parent, os.W_OK | os.X_OK):
            shutil.rmtree(folder, ignore_errors=True)


def _remove_one(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path, ignore_errors=True)
        except RecursionError:
            # Python goes as deep as its stack, and a candidate makes folders as deep as it likes.
            _run("rm", "-rf", "--", str(path))
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _open(folder: Path) -> None:
    """Let this user into `folder` and every folder below; links are not followed."""
    _run("chmod", "-R", "u+rwx", "--", str(folder))


def _run(*argv: str) -> None:
    """What fails is still there, and is looked at by the caller."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(argv, capture_output=True, timeout=_SECONDS, check=False)


def sweep(mark: str) -> int:
    """SIGKILL for each process whose environment holds `mark` (`NAME=value`); how many there were.

    Looks again until nothing is found, since a process may have forked while it was looked for, and the child is not in
    the list that was read before. One that is just replacing its program has no environment for a moment: it is looked
    at once more.
    """
    wanted = mark.encode()
    killed: set[int] = set()
    looked: set[int] = set()
    for _ in range(_LOOKS):
        found, unclear = _marked(wanted)
        for process in found:
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        killed |= found
        if not found and unclear <= looked:
            break
        looked |= unclear
        time.sleep(_BETWEEN_LOOKS)
    return len(killed)


def _marked(wanted: bytes) -> tuple[set[int], set[int]]:
    """The processes that hold `wanted`, and those that run a program but show no environment."""
    found: set[int] = set()
    unclear: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        # Processes of others cannot be read, some end meanwhile, and the kernel's own have no program.
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes()
            if wanted in variables.split(b"\0"):
                found.add(int(entry.name))
            elif not variables and (entry / "exe").readlink():
                unclear.add(int(entry.name))
    return found, unclear
