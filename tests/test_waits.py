"""Waits: what stalls is named and ends the run; what is alive may go on; what hangs ends the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from selfplay.errors import RunFailed
from selfplay.waits import Waits

HANGS = """
import sys, threading
from functools import partial
from pathlib import Path
from selfplay import build, loop
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.learner.trainer import Trainer
from selfplay.project import find_project
from selfplay.waits import Waits
loop.TORCH_SECONDS, loop.LEARNING_SECONDS = 20.0, 0.0
build.Pools = partial(build.Pools, waits=Waits(poll=0.1, grace=1.0))
Trainer.update = lambda self, batch: threading.Event().wait()
project = find_project(explicit=Path(sys.argv[1]))
config = load("demo", project=project, sets=["run.steps=2"])
build.execute(config, project=project, folder=Path(sys.argv[2]), observe=ignore, interrupt=Interrupt())
"""


def quick(ends: list[str], *, loop_seconds: float = 60.0) -> Waits:
    return Waits(end=ends.append, poll=0.02, grace=0.0, loop_seconds=loop_seconds)


def test_a_stalled_wait_ends_the_run_and_is_named() -> None:
    ends: list[str] = []
    waits = quick(ends)

    async def main() -> None:
        async with waits.guarding():
            with waits.on("a reply of role `solver`", seconds=0.2):
                await asyncio.sleep(3600)

    with pytest.raises(RunFailed, match="a reply of role `solver`, and nothing came \\(1 under way\\)") as failed:
        asyncio.run(asyncio.wait_for(main(), timeout=60))
    assert "type the same run command again" in failed.value.hint


def test_what_goes_on_ending_may_take_longer_than_the_deadline() -> None:
    ends: list[str] = []
    waits = quick(ends)

    async def one(seconds: float) -> None:
        with waits.on("a decision", seconds=30.0):
            await asyncio.sleep(seconds)

    async def main() -> str:
        async with waits.guarding():
            await asyncio.gather(*(one(0.05 * i) for i in range(10)))
        return "done"

    assert asyncio.run(main()) == "done"
    assert ends == []


def test_a_wait_begins_anew_when_one_of_its_name_ended() -> None:
    ends: list[str] = []
    waits = quick(ends)
    with waits.on("a decision", seconds=1.0):
        with waits.on("a decision", seconds=1.0):
            pass
        now = waits._beat = time.monotonic()
        assert waits._late(now + 0.9, 0) is None
        assert "a decision" in (waits._late(now + 2.0, 0) or "")
    assert waits._late(now + 2.0, 0) is None


def test_a_call_that_holds_up_the_loop_is_named_and_ends_the_process() -> None:
    ends: list[str] = []
    waits = quick(ends, loop_seconds=0.5)
    told = threading.Event()

    def end(message: str) -> None:
        ends.append(message)
        told.set()

    waits._end = end

    async def main() -> None:
        async with waits.guarding():
            assert told.wait(60.0), "nobody noticed"
            await asyncio.sleep(60.0)

    with pytest.raises(RunFailed, match="one call held up the run"):
        asyncio.run(asyncio.wait_for(main(), timeout=120))
    assert len(ends) == 1


@pytest.mark.slow
def test_a_learner_that_hangs_ends_the_process_and_the_run_can_go_on(tmp_path: Path) -> None:
    checkout = Path(__file__).parent.parent
    command = [sys.executable, "-c", HANGS, str(checkout), str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "for the torch thread, and nothing came" in ended.stderr
