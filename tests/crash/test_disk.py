"""A full disk and a read-only one: a sentence, exit code 3, and nothing lost once there is room again.

A small tmpfs is the run's folder; mounting needs root, without it these tests are skipped.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from compared import differences
from harness import Chain, Launch, Played, Setup

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")]

NOT_READY = 3
MEGABYTES = 48
LEFT_BYTES = 4 << 20
"""Room for rows, none for a save."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, `MEGABYTES` large."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, *, leave: int) -> Path:
    """Fill `disk` but for `leave` bytes."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    # note: unbuffered, and full is full: the run writes meanwhile.
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for _ in range(max(0, room.f_bavail * room.f_frsize - leave) >> 12):
            file.write(bytes(4096))
    return ballast


def refused(launch: Launch) -> str:
    """The sentence of a launch that ended because the machine was not ready."""
    assert launch.wait() == NOT_READY, launch.said[-2000:]
    assert "Traceback" not in launch.said
    (error,) = (event["error"] for event in launch.events if "error" in event)
    assert error["kind"] == "not_ready"
    assert error["hint"]
    return str(error["message"])


def test_the_disk_runs_full(toy: tuple[Setup, Played], disk: Path) -> None:
    setup, whole = toy
    chain = Chain(setup=setup, runs=disk / "runs", name="chain", log_folder=disk.parent)
    launch = chain.launch()
    launch.wait_for(lambda event: event.get("kind") == "step")
    ballast = fill(disk, leave=0)
    assert "full" in refused(launch)
    ballast.unlink()
    ballast = fill(disk, leave=LEFT_BYTES)
    assert "cannot save the weights" in refused(chain.launch())
    ballast.unlink()
    chain.finish()
    assert differences(chain, whole.folder) == []


def test_no_room_to_begin(toy: tuple[Setup, Played], disk: Path) -> None:
    setup, whole = toy
    chain = Chain(setup=setup, runs=disk / "runs", name="chain", log_folder=disk.parent)
    chain.runs.mkdir()
    ballast = fill(disk, leave=0)
    assert str(chain.folder) in refused(chain.launch())
    ballast.unlink()
    chain.finish()
    assert differences(chain, whole.folder) == []


def test_a_read_only_disk(toy: tuple[Setup, Played], disk: Path) -> None:
    setup, whole = toy
    chain = Chain(setup=setup, runs=disk / "runs", name="chain", log_folder=disk.parent)
    launch = chain.launch()
    launch.wait_for(lambda event: event.get("kind") == "step")
    launch.kill()
    launch.wait()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert str(chain.folder) in refused(chain.launch())
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    chain.finish()
    assert differences(chain, whole.folder) == []
