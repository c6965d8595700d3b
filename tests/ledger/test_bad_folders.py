"""Run folders as people leave them: copied while live, without locks, another's, half deleted, with odd clocks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from selfplay.errors import NotReady, RunFailed
from selfplay.ledger import Ledger, writer
from selfplay.ledger.lock import Lock, holder

NOBODY = 65534


def copied(folder: Path, target: Path, *, without: tuple[str, ...] = ()) -> Path:
    return Path(shutil.copytree(folder, target, ignore=lambda _, names: [n for n in names if n in without]))


def test_a_copy_of_a_live_run_opens_with_all_that_was_committed(ledger, make, tmp_path):
    for step in range(3):
        make.step(ledger, step)
    assert {"ledger.db-wal", "ledger.db-shm"} <= {path.name for path in ledger.folder.iterdir()}
    copy = copied(ledger.folder, tmp_path / "copy")
    assert holder(ledger.folder).pid == os.getpid()
    assert holder(copy) is None
    with Ledger.read(copy) as reader:
        assert reader.last_closed_step() == 2
    with Ledger.open(copy) as again:
        assert again.comparable() == ledger.comparable()
        make.step(again, 3)
    assert ledger.last_closed_step() == 2


@pytest.mark.parametrize("without", [("ledger.db-wal",), ("ledger.db-wal", "ledger.db-shm")])
def test_a_copy_without_its_newest_rows_is_an_older_whole_run(folder, create, make, tmp_path, without):
    with create(folder) as ledger:
        make.step(ledger, 0)
    with Ledger.open(folder) as ledger:
        make.step(ledger, 1)
        copy = copied(folder, tmp_path / "copy", without=without)
    with Ledger.open(copy) as again:
        assert (again.last_closed_step(), again.check()) == (0, ())
        make.step(again, 1)


def test_a_copy_with_a_stale_shm_opens(folder, create, make, tmp_path):
    with create(folder) as ledger:
        make.step(ledger, 0)
        shutil.copy(folder / "ledger.db-shm", tmp_path / "stale")
        for step in range(1, 4):
            make.step(ledger, step)
        copy = copied(folder, tmp_path / "copy")
    shutil.copy(tmp_path / "stale", copy / "ledger.db-shm")
    with Ledger.read(copy) as reader:
        assert reader.last_closed_step() == 3


def test_a_wal_older_than_its_file_is_whole_or_named(folder, create, make, tmp_path):
    with create(folder) as ledger:
        make.step(ledger, 0)
        shutil.copy(folder / "ledger.db-wal", tmp_path / "old-wal")
        for step in range(1, 30):
            make.step(ledger, step)
    shutil.copy(tmp_path / "old-wal", folder / "ledger.db-wal")
    message = ""
    try:
        with Ledger.read(folder) as reader:
            fine = bool(reader.check()) or reader.last_closed_step() == 29
    except RunFailed as error:
        fine, message = False, error.message
    assert fine or "ledger.db is damaged" in message


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_wal_loses_its_end_and_nothing_before(folder, create, make, tmp_path, damage):
    with create(folder) as ledger:
        make.step(ledger, 0)
        safe = (folder / "ledger.db-wal").stat().st_size
        for step in range(1, 4):
            make.step(ledger, step)
        copy = copied(folder, tmp_path / "copy", without=("ledger.db-shm",))
    wal = copy / "ledger.db-wal"
    raw = bytearray(wal.read_bytes())
    if damage == "cut":
        raw = raw[: safe + 5000]
    else:
        raw[safe + 5000] ^= 1
    wal.write_bytes(raw)
    with Ledger.open(copy) as again:
        assert (again.last_closed_step(), again.check()) == (0, ())
        make.step(again, 1)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(folder, create, make, monkeypatch, number):
    with create(folder) as ledger:
        make.step(ledger, 0)

    def refuse(fd: int, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotReady, match=r"file system without locks .*two processes could write") as error:
        Ledger.open(folder)
    assert "SELFPLAY_RUNS=FOLDER" in error.value.hint
    assert holder(folder) is None
    with Ledger.read(folder) as reader:
        assert reader.last_closed_step() == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_sqlite_says_without_locks_is_named(folder, create):
    from selfplay.ledger import files

    create(folder).close()
    broken = sqlite3.OperationalError("locking protocol")
    broken.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
    told = files.translate(broken, folder / "ledger.db")
    assert isinstance(told, NotReady)
    assert "lies where SQLite cannot lock it" in told.message


AS_NOBODY = """
import os, sys
from pathlib import Path
from selfplay.errors import SelfplayError
from selfplay.ledger import Ledger
from selfplay.ledger.lock import holder
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
folder = Path(sys.argv[1])
for opening in (Ledger.read, Ledger.open):
    try:
        with opening(folder) as found:
            print("closed", found.last_closed_step(), "held" if holder(folder) else "free")
    except SelfplayError as error:
        print(type(error).__name__, error.message, "|", error.hint)
"""


def told(folder: Path, env: dict[str, str]) -> list[str]:
    words = [sys.executable, "-c", AS_NOBODY, str(folder), str(NOBODY)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def open_to_all(folder: Path) -> Path:
    """The folder, below one that everyone may enter."""
    for parent in (folder.parent, *folder.parent.parents):
        if parent == Path("/tmp"):
            break
        if parent.owner() == "root" and not parent.stat().st_mode & 0o5:
            parent.chmod(parent.stat().st_mode | 0o55)
    return folder


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_another_users_run_can_be_read_and_not_written(open_to_all, create, make, child_env):
    folder = open_to_all
    with create(folder) as ledger:
        make.step(ledger, 0)
        live = told(folder, child_env)
    assert live[0] == "closed 0 held"
    assert live[1].startswith("NotReady cannot write in")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    closed = told(folder, child_env)
    assert closed[0] == "closed 0 free"
    assert closed[1].startswith("NotReady cannot write in")
    assert "Permission denied" in closed[1]
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("hidden", [".", "ledger.db"])
def test_a_run_that_may_not_be_read_is_one_sentence(open_to_all, create, child_env, hidden):
    folder = open_to_all
    create(folder).close()
    (folder / hidden).chmod(0o600)
    for row in told(folder, child_env):
        assert row.startswith("NotReady cannot "), row
        assert "Permission denied" in row


def test_a_clock_that_jumps_back_changes_nothing_but_the_clock(folder, create, make, monkeypatch):
    with create(folder.with_name("steady")) as steady:
        for step in range(3):
            make.step(steady, step)
        expected = steady.comparable()
    times = iter(range(2_000_000_000, 0, -1_000_000))
    monkeypatch.setattr(writer.time, "time", lambda: float(next(times)))
    with create(folder) as ledger:
        for step in range(3):
            make.step(ledger, step)
        closed = [row.closed_at for row in ledger.step_rows()]
        assert closed == sorted(closed, reverse=True)
        assert (ledger.comparable(), ledger.check()) == (expected, ())
        assert ledger.status().last_closed_step == 2
    lock = Lock.take(folder)
    lock.release()
    with Ledger.open(folder) as ledger:
        assert ledger.last_closed_step() == 2
