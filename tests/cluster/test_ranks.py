"""A learner whose second rank is on another node: the same rewards and weights, also where the node is killed.

The driver is a process of its own; the nodes are the test's.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from selfplay.learner.ranks_world import COLLECTIVE_SECONDS
from selfplay.learner.weights import read
from selfplay.ledger import Ledger
from tests.cluster.conftest import Machines, left_over, processes
from tests.crash.harness import Chain, Setup

STEPS = 6
WHOLE = ("learner.dtype=float32", "policy.threads=1", "run.save_every=1")
RANKS = ("-s", "run.cluster={sandboxes=0, place_seconds=900}", "-s", "learner.ranks=2")


@pytest.fixture(name="alone", scope="module")
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The same run without Ray, in one process."""
    chain = Chain(setup=Setup.toy(*WHOLE, steps=STEPS), runs=tmp_path_factory.mktemp("alone"), name="toy")
    chain.finish()
    return chain


def ranked(alone: Chain, runs: Path) -> Chain:
    """The run of `alone`, on the cluster of `RAY_ADDRESS`."""
    return Chain(setup=Setup(words=(*alone.setup.words, *RANKS)), runs=runs, name="toy")


def check_same(found: Path, alone: Path) -> None:
    """The same rewards, and weights to 1e-6."""
    with Ledger.read(found) as one, Ledger.read(alone) as other:
        mine, theirs = one.comparable(), other.comparable()
        assert mine["verdicts"] == theirs["verdicts"]
        assert mine["tasks"] == theirs["tasks"]
        saves = one.saves()[-1], other.saves()[-1]
    assert saves[0].policy_version == saves[1].policy_version > 0
    ours, wanted = read(found / saves[0].path).tensors, read(alone / saves[1].path).tensors
    for name, tensor in wanted.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-6, rtol=0)


def test_two_ranks_on_two_nodes_play_the_same_run(machines: Machines, alone: Chain, tmp_path: Path) -> None:
    machines.node(num_cpus=1)
    chain = ranked(alone, tmp_path)
    chain.finish()
    check_same(chain.folder, alone.folder)
    assert left_over() == []


def test_a_learner_node_that_is_killed_costs_a_save_and_nothing_else(
    machines: Machines, alone: Chain, tmp_path: Path
) -> None:
    first = machines.node(num_cpus=1)
    chain = ranked(alone, tmp_path)
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    machines.node(num_cpus=1)
    machines.kill(first)
    assert launch.wait() == 0, launch.said
    alarms = [event["data"]["text"] for event in launch.events if event.get("kind") == "alarm"]
    assert any(text.startswith("rank 1 of the learner is lost") and "begun anew" in text for text in alarms), alarms
    with Ledger.read(chain.folder) as ledger:
        assert "learner_lost" in {alarm.code for alarm in ledger.alarms()}
        assert not ledger.check()
    check_same(chain.folder, alone.folder)
    assert left_over() == []


def test_a_learner_node_that_is_silent_is_noticed_in_a_minute(machines: Machines, alone: Chain, tmp_path: Path) -> None:
    """Its machine closes no connection: what waits for it inside an update hears nothing, ever."""
    first = machines.node(num_cpus=1)
    chain = ranked(alone, tmp_path)
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    machines.node(num_cpus=1)
    machines.stop(first)
    began = time.monotonic()
    assert launch.wait_for(lambda event: "begun anew" in str(event.get("data", {}).get("text"))), launch.said
    seconds = time.monotonic() - began
    assert launch.wait() == 0, launch.said
    texts = [event["data"]["text"] for event in launch.events if event.get("kind") == "alarm"]
    assert any("no sign of life" in text or "is lost" in text for text in texts), texts
    assert seconds < COLLECTIVE_SECONDS / 6, "gloo has not noticed it"
    machines.kill(first)
    with Ledger.read(chain.folder) as ledger:
        assert not ledger.check()
    check_same(chain.folder, alone.folder)
    assert left_over() == []


def test_a_driver_that_is_killed_goes_on_by_the_same_command(machines: Machines, alone: Chain, tmp_path: Path) -> None:
    machines.node(num_cpus=1)
    chain = ranked(alone, tmp_path)
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    launch.kill()
    launch.wait()
    chain.finish()
    check_same(chain.folder, alone.folder)
    assert left_over() == []


def test_a_learner_that_finds_no_node_any_more_ends_the_run_in_one_sentence(
    machines: Machines, alone: Chain, tmp_path: Path
) -> None:
    only = machines.node(num_cpus=1)
    chain = ranked(alone, tmp_path)
    launch = chain.launch("-s", "run.cluster={sandboxes=0, place_seconds=30}")
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    machines.kill(only)
    assert launch.wait() == 3
    assert "are asked for" in launch.said or "had no place" in launch.said, launch.said
    assert left_over() == []


@pytest.mark.usefixtures("ray")
def test_without_an_address_a_cluster_of_this_machine_is_started_and_stopped(
    alone: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    chain = ranked(alone, tmp_path)
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    assert processes("RankNode", of=launch.process.pid)
    launch.kill()
    launch.wait()
    assert left_over(of=launch.process.pid) == []
    last = chain.finish()
    assert left_over(of=last.process.pid) == []
    check_same(chain.folder, alone.folder)
