"""Two processes, one run: one plays, the other says who holds it and touches nothing."""

from __future__ import annotations

import signal

import pytest
from compared import differences
from harness import Chain, Played, Setup

pytestmark = pytest.mark.slow

HELD = 4


def test_a_held_run_names_its_holder(chain: Chain, toy: tuple[Setup, Played]) -> None:
    first = chain.launch()
    first.wait_for(lambda event: event.get("kind") == "launch")
    first.kill(signal.SIGSTOP)
    second = chain.launch()
    code = second.wait()
    first.kill(signal.SIGCONT)
    assert code == HELD
    (refusal,) = (event for event in second.events if "error" in event)
    assert refusal["error"]["kind"] == "held"
    assert str(first.process.pid) in refusal["error"]["message"]
    assert first.wait() == 0
    assert differences(chain, toy[1].folder) == []


def test_started_at_once_on_a_new_name(chain: Chain, toy: tuple[Setup, Played]) -> None:
    launches = [chain.launch() for _ in range(3)]
    codes = sorted(launch.wait() for launch in launches)
    assert codes[0] == 0
    assert set(codes) <= {0, HELD}, launches[0].said[-2000:]
    assert differences(chain, toy[1].folder) == []
