"""Runs of the toy game whose sampler is a real vLLM, a child process of an actor on a node; one engine is killed.

Needs Ray and, in an environment of its own, vLLM: SELFPLAY_VLLM_PYTHON=THAT/bin/python .ci/ray -m vllm
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from selfplay.ledger import Ledger, check
from tests.cluster.conftest import Machines, left_over, processes
from tests.crash.harness import Chain, Setup
from tests.together import check_together

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

MARK = "SELFPLAY_TEST_OF"
"""A variable that the node's processes have from the test."""


@pytest.fixture
def vllm() -> str:
    """The interpreter that has vLLM."""
    named = os.environ.get("SELFPLAY_VLLM_PYTHON", "")
    if not named:
        sentence = "SELFPLAY_VLLM_PYTHON names no interpreter with vLLM (CONTRIBUTING.md says how to make one)"
        pytest.fail(sentence) if os.environ.get("SELFPLAY_REQUIRE_VLLM") == "1" else pytest.skip(sentence)
    return named


def children(mark: Path) -> list[int]:
    """Processes of vLLM on the test's nodes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}".encode() in (place / "environ").read_bytes()
            if ours and b"vllm_child.py" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("rank", [0, 4])
def test_every_step_is_sampled_from_the_learners_weights(
    rank: int, machines: Machines, vllm: str, tmp_path: Path
) -> None:
    machines.node(engines=1, env_vars={MARK: str(tmp_path)})
    setup = Setup.toy(
        "policy.backend=vllm",
        f"policy.options={{python='{vllm}', kv_gb=0.25}}",
        "run.cluster={sandboxes=0, engines=1, place_seconds=600}",
        "learner.dtype=float32",
        f"learner.lora_rank={rank}",
        "run.save_every=1",
        steps=3,
    )
    chain = Chain(setup=setup, runs=tmp_path, name="toy")
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    assert len(children(tmp_path)) == 1
    if not rank:
        os.kill(processes("EngineNode")[0], signal.SIGKILL)
    assert launch.wait() == 0, launch.said
    with Ledger.read(chain.folder) as ledger:
        check_together(ledger, steps=3)
        assert {alarm.code for alarm in ledger.alarms()} == (set() if rank else {"engine_lost"})
    assert not [one for one in check.checks(chain.folder) if one.num_problems]
    notes = [event["data"]["text"] for event in launch.events if event.get("kind") == "note"]
    assert sum("starting vLLM" in text and text.startswith("engine 1 on ") for text in notes) == (1 if rank else 2), (
        notes
    )
    assert left_over() == []
    until = time.monotonic() + 60.0
    while children(tmp_path) and time.monotonic() < until:
        time.sleep(0.2)
    assert children(tmp_path) == []
