"""One writer a run, and none that is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from selfplay.errors import Held
from selfplay.ledger import Ledger
from selfplay.ledger.lock import Lock, holder

HOLD = """
import sys, time
from pathlib import Path
from selfplay.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(folder, create, child_env):
    create(folder).close()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], env=child_env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        who = holder(folder)
        assert (who.pid, who.host) == (child.pid, os.uname().nodename)
        with pytest.raises(Held, match=f"held by process {child.pid} on {who.host}") as error:
            Ledger.open(folder)
        assert f"kill -INT {child.pid}" in error.value.hint
        Ledger.read(folder).close()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert holder(folder) is None
    Ledger.open(folder).close()


def test_the_same_process_is_refused_too(ledger):
    with pytest.raises(Held, match=f"process {os.getpid()}"):
        Ledger.open(ledger.folder)


def test_asking_who_holds_it_does_not_stand_in_the_way(folder):
    assert holder(folder) is None
    for _ in range(20):
        lock = Lock.take(folder)
        assert holder(folder).pid == os.getpid()
        lock.release()
        lock.release()
        assert holder(folder) is None


def test_a_lock_without_words_is_still_a_lock(folder):
    lock = Lock.take(folder)
    (folder / "ledger.lock").write_bytes(b"\xff not JSON")
    assert holder(folder) is not None
    with pytest.raises(Held, match="held by another process"):
        Lock.take(folder)
    lock.release()
