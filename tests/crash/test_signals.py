"""Asked to stop, at every step and in every way: the exit code says so, and the same command goes on.

Not here: signal handlers by themselves (`tests/cli/test_signals.py`).
"""

from __future__ import annotations

import itertools
import signal
import time

import pytest
from compared import differences
from harness import Chain, Launch, Played, Setup

pytestmark = pytest.mark.slow


def once(launch: Launch, number: int) -> int:
    """Ask once; the exit code as a shell sees it (a signal that meets a process on its way out ends it as such)."""
    launch.kill(number)
    code = launch.wait()
    return 128 - code if code < 0 else code


def twice(launch: Launch, number: int) -> int:
    launch.kill(number)
    time.sleep(0.05)
    return once(launch, number)


def test_interrupted_at_every_step(chain: Chain, toy: tuple[Setup, Played]) -> None:
    ways = itertools.cycle(
        [
            (once, signal.SIGINT, 130),
            (once, signal.SIGTERM, 143),
            (twice, signal.SIGINT, 130),
            (twice, signal.SIGTERM, 143),
        ]
    )
    seen = []
    for stop, number, expected in ways:
        launch = chain.launch()
        if not launch.wait_for(lambda event: event.get("kind") == "step"):
            break
        code = stop(launch, number)
        assert code in (0, expected), launch.said[-2000:]
        seen.append(code)
        if code == 0:
            break
    assert chain.finish().wait() == 0
    assert {130, 143} <= set(seen)
    assert differences(chain, toy[1].folder) == []


def test_asked_before_anything_is_loaded(chain: Chain, toy: tuple[Setup, Played]) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        launch = chain.launch()
        launch.wait_for(lambda event: True)
        assert once(launch, number) == code, launch.said[-2000:]
        assert "Traceback" not in launch.said
    chain.finish()
    assert differences(chain, toy[1].folder) == []
