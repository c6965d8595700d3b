"""One writer a run: a lock that the kernel frees when its process dies, however it dies.

`ledger.lock` lies beside the ledger. The lock is flock's; the text inside only says who holds it.

Not here: waiting. A held run is an error that names the holder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from selfplay.errors import Held, NotReady
from selfplay.types import record

NAME = "ledger.lock"

LOCAL = "put the runs on a local disk: SELFPLAY_RUNS=FOLDER, or a project that lies on one"
"""What to do where a file system has no locks."""

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What flock answers on file systems without locks."""

PATIENCE_SECONDS = 0.3
"""How long `take` tries: `holder` takes the lock for an instant, which must not look like a run."""


@record
class Holder:
    """Who holds a run."""

    pid: int
    host: str
    started_at: float
    """Unix seconds."""


class Lock:
    """A held lock; `release` or the end of the process frees it."""

    def __init__(self, fd: int) -> None:
        """Use `take`."""
        self._fd: int | None = fd

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """Hold `folder`, which is made where missing.

        Raises:
            Held: another live process holds it.
            NotReady: the folder cannot be written, or its file system has no locks.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise NotReady(f"cannot write in {folder}: {error.strerror}", hint="free it, or choose another") from error
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _locked(fd, folder):
            if time.monotonic() > deadline:
                who = _read(fd)
                os.close(fd)
                raise Held(_held(folder, who), hint=_end(who))
            time.sleep(0.01)
        lock = cls(fd)
        try:
            _write(fd, Holder(pid=os.getpid(), host=socket.gethostname(), started_at=time.time()))
        except OSError as error:
            lock.release()
            raise NotReady(f"cannot write in {folder}: {error.strerror}", hint="see what is full: df -h") from error
        return lock

    def release(self) -> None:
        """Let go; idempotent. The file stays: removing it would let two processes lock two files."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def _locked(fd: int, folder: Path) -> bool:
    """Try once; without a lock nothing is written, since two processes could write one run."""
    try:
        return _try(fd, fcntl.LOCK_EX)
    except OSError as error:
        os.close(fd)
        if error.errno in _NO_LOCKS:
            raise NotReady(
                f"{folder} lies on a file system without locks ({error.strerror}): two processes could write one run",
                hint=LOCAL,
            ) from error
        raise NotReady(f"cannot lock {folder / NAME}: {error.strerror}", hint="look at the file system") from error


def holder(folder: Path) -> Holder | None:
    """Who holds the run in `folder` at this moment; None where nobody does, or where that cannot be seen."""
    try:
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _read(fd) or Holder(pid=0, host="?", started_at=0.0)
    except OSError:
        # note: a file system without locks; nobody can hold a run there.
        return None
    finally:
        os.close(fd)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(fd: int, who: Holder) -> None:
    body = json.dumps({"pid": who.pid, "host": who.host, "started_at": who.started_at}).encode()
    os.ftruncate(fd, 0)
    os.pwrite(fd, body, 0)


def _read(fd: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _held(folder: Path, who: Holder | None) -> str:
    if who is None:
        return f"run `{folder.name}` is held by another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who.started_at))
    return f"run `{folder.name}` is held by process {who.pid} on {who.host} since {since}"


def _end(who: Holder | None) -> str:
    if who is None:
        return "wait for it, or end it"
    where = "" if who.host == socket.gethostname() else f" on {who.host}"
    return f"wait for it, or end it{where}: kill -INT {who.pid} (it closes its books and can be resumed)"
