"""The writer's thread under kills, full disks and other programs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import NotReady, RunFailed
from selfplay.ledger import Ledger
from selfplay.ledger.writer import WINDOW_SECONDS

CONFTEST = Path(__file__).with_name("conftest.py")

HEAD = f"""
import importlib.util, sys
from concurrent.futures import wait
from pathlib import Path
from selfplay.ledger import Ledger
spec = importlib.util.spec_from_file_location("records", {str(CONFTEST)!r})
records = importlib.util.module_from_spec(spec)
spec.loader.exec_module(records)
make, folder = records.Make(), Path(sys.argv[1])
"""

PLAY = (
    HEAD
    + """
ledger = Ledger.open(folder)
print("open", flush=True)
for step in range(ledger.last_closed_step() + 1, 10_000):
    ledger.append(make.seed())
    made = set(ledger.trajectories_by_id(make.play(step, index=i).id for i in range(20)))
    for i in range(20):
        play = make.play(step, index=i)
        if play.id in made:
            continue
        future = ledger.append(play, make.verdict(play, "mint"))
        future.add_done_callback(lambda done, play=play: print("row", play.id, flush=True))
    make.close(ledger, step, groups=[make.group([make.play(step, index=i) for i in range(20)], (1.0, -1.0) * 10)])
    print("step", step, flush=True)
    ledger.append_save(make.save(step))
    print("save", step, flush=True)
"""
)


def killed(folder: Path, env: dict[str, str], after_seconds: float) -> list[list[str]]:
    """Run PLAY, kill it that long after it opened the ledger; the acknowledgements it printed, split."""
    child = subprocess.Popen([sys.executable, "-c", PLAY, str(folder)], env=env, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"open\n"
    time.sleep(after_seconds)
    child.send_signal(signal.SIGKILL)
    out, _ = child.communicate()
    return [line.decode().split() for line in out.splitlines(keepends=True) if line.endswith(b"\n")]


def test_what_was_acknowledged_survives_kill_9_at_any_moment(folder, create, make, child_env):
    create(folder).close()
    draw = random.Random(0)
    acknowledged: list[list[str]] = []
    for _ in range(6):
        acknowledged += killed(folder, child_env, draw.uniform(0.0, 0.25))
        with Ledger.read(folder) as reader:
            steps = [int(number) for what, number in acknowledged if what == "step"]
            saved = [int(number) for what, number in acknowledged if what == "save"]
            played = [number for what, number in acknowledged if what == "row"]
            assert reader.check() == ()
            assert len(reader.trajectories_by_id(played)) == len(played)
            assert all(reader.verdicts_of(trajectory_id) for trajectory_id in played[-20:])
            last = reader.last_closed_step()
            assert last >= max(steps, default=-1)
            assert {save.step for save in reader.saves()} >= set(saved)
            assert [update.step for update in reader.updates("play")] == list(range(last + 1))
            for step in range(last + 1):
                assert len(reader.trajectories(step, "propose")) == 20
                (group,) = reader.groups(step)
                assert len(group.trajectory_ids) == 20
    assert acknowledged


def test_an_interrupted_run_ends_equal_to_an_uninterrupted_one(tmp_path, create, make, child_env):
    interrupted, whole = tmp_path / "interrupted", tmp_path / "whole"
    create(interrupted).close()
    for _ in range(3):
        killed(interrupted, child_env, 0.1)
    with Ledger.open(interrupted) as ledger, create(whole) as other:
        last = ledger.last_closed_step()
        for step in range(last + 1):
            other.append(make.seed())
            plays = [make.play(step, index=i) for i in range(20)]
            other.append(*(row for play in plays for row in (play, make.verdict(play, "mint"))))
            make.close(other, step, groups=[make.group(plays, (1.0, -1.0) * 10)])
            other.append_save(make.save(step))
        # What lies beyond the last closed step is owed; the interrupted run has begun some of it.
        for play in ledger.trajectories(last + 1, "propose"):
            other.append(play, make.verdict(play, "mint"))
        if len(ledger.saves()) <= last:
            ledger.append_save(make.save(last))
        other.append(make.seed())
        ledger.append(make.seed())
        assert ledger.comparable() == other.comparable()


def test_a_commit_needs_no_other_call(ledger, make):
    assert WINDOW_SECONDS <= 0.05
    ledger.append(make.play()).result(timeout=10)


def test_a_group_is_one_transaction(ledger, make):
    changes = "SELECT count(DISTINCT at) FROM trajectories"
    futures = [ledger.append(make.play(index=index)) for index in range(100)]
    for future in futures:
        future.result()
    assert ledger._rows(changes)[0][0] < 20


FULL = (
    HEAD
    + """
import resource
from selfplay.errors import NotReady
with Ledger.create(folder, config_digest="c0", config={}, seed=0, game="echo") as ledger:
    ledger.append(make.seed()).result()
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
ledger = Ledger.open(folder)
futures = []
try:
    for index in range(100_000):
        futures.append(ledger.append(make.play(index=index)))
        if index % 50 == 0:
            futures[-1].result()
except NotReady as error:
    told = error
for future in futures:
    assert future.exception() is None or future.exception() is told
for again in (lambda: ledger.append(make.seed()), lambda: ledger.append_save(make.save()), ledger.flush,
              lambda: make.close(ledger, 0)):
    try:
        again()
    except NotReady as error:
        assert error is told
    else:
        raise AssertionError("taken after a failure")
ledger.close()
print(sum(future.exception() is None for future in futures))
print(told.message, told.hint)
"""
)


def fill(folder: Path, env: dict[str, str], limit: int) -> tuple[int, str]:
    """Append until nothing fits; how many were acknowledged, and what was said."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder), str(limit)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    number, words = done.stdout.splitlines()
    return int(number), words


def check_full(folder: Path, acknowledged: int, words: str) -> None:
    assert "disk full" in words
    assert "df -h" in words
    assert acknowledged > 0
    with Ledger.read(folder) as reader:
        assert len(reader.trajectories(0, "propose")) >= acknowledged
        assert reader.check() == ()


def test_a_file_that_may_not_grow_stops_everything_and_loses_nothing(folder, child_env):
    acknowledged, words = fill(folder, child_env, limit=600_000)
    check_full(folder, acknowledged, words)
    with Ledger.open(folder) as ledger:
        assert ledger.last_closed_step() == -1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_stops_everything_and_loses_nothing(tmp_path, child_env):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "selfplay-test", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        acknowledged, words = fill(tmp_path / "run", child_env, limit=0)
        check_full(tmp_path / "run", acknowledged, words)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_failure_that_nobody_was_told_of_is_raised_by_close(folder, create, make, monkeypatch):
    monkeypatch.setattr("selfplay.ledger.files._BUSY_SECONDS", 0.05)
    ledger = create(folder)
    other = sqlite3.connect(folder / "ledger.db")
    other.execute("BEGIN IMMEDIATE")
    future = ledger.append(make.seed())
    assert isinstance(future.exception(timeout=10), NotReady)
    other.close()
    with pytest.raises(NotReady, match=r"another program keeps .* locked"):
        ledger.close()


def test_an_error_under_way_is_not_hidden_by_close(folder, create, make):
    def fail() -> None:
        with create(folder) as ledger:
            ledger.append(make.seed())
            ledger.append(make.seed(source="elsewhere"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with Ledger.open(folder) as ledger:
        assert ledger.seeds() == (make.seed(),)


def test_a_blocked_reader_does_not_stop_the_writer(ledger, make):
    with Ledger.read(ledger.folder) as reader, reader._snapshot() as ask:
        before = ask("SELECT count(*) FROM steps")[0][0]
        make.step(ledger, 0)
        assert ask("SELECT count(*) FROM steps")[0][0] == before == 0
    assert ledger.last_closed_step() == 0


@pytest.mark.parametrize(("index", "why"), [(1 << 70, "too large"), (0.5, "REAL"), (object(), "not supported")])
def test_what_is_no_sql_is_refused_alone(ledger, make, index, why):
    play = make.play(index=1)
    good, bad = ledger.append(make.play(index=0)), ledger.append(replace(play, index=index))
    good.result()
    with pytest.raises(RunFailed, match=why):
        bad.result()
    with pytest.raises(RunFailed):
        ledger.flush()
    ledger.append(play).result()


def test_an_event_loop_can_wait_and_give_up(ledger, make):
    async def append() -> None:
        await asyncio.wrap_future(ledger.append(make.seed()))
        waiting = asyncio.ensure_future(asyncio.wrap_future(ledger.append(make.seed("s1"))))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()

    asyncio.run(append())
    assert ledger.seeds() == (make.seed(), make.seed("s1"))


def test_any_failure_reaches_whoever_waits(folder, create, make, monkeypatch):
    ledger = create(folder)

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("selfplay.ledger.blobs.pack", fail)
    waiting = [ledger.append(make.play(index=index)) for index in range(3)]
    for future in waiting:
        assert "ZeroDivisionError" in str(future.exception(timeout=10))
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        ledger.append(make.seed())
    ledger.close()


def test_pages_that_pruning_empties_are_given_back(folder, create, make):
    ledger = create(folder)
    long = tuple(-i / 1024 for i in range(50_000))
    for step in range(3):
        update = make.update(step, trajectory_ids=("t0",), advantages=(0.1,), partition=((0,),), old_logprobs=(long,))
        ledger.close_step(step=step, groups=(), update=update, stage_seconds={}, counts={})
    assert ledger.last_pruned_step() == -1
    connection = sqlite3.connect(folder / "ledger.db")
    (before,) = connection.execute("PRAGMA page_count").fetchone()
    assert ledger.prune_logprobs(before=2) == 2 * 4 * len(long)
    (after,) = connection.execute("PRAGMA page_count").fetchone()
    assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    connection.close()
    assert (before - after) * 4096 > 0.95 * 2 * 4 * len(long)
    assert ledger.last_pruned_step() == 1
    ledger.close()
