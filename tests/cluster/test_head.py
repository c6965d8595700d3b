"""The death of the cluster's head in the middle of a run: one sentence, exit code 3, and the same command goes on."""

from __future__ import annotations

import os
import queue
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.cluster import head
from selfplay.errors import NotReady
from selfplay.ledger import Ledger
from tests.backends import needed
from tests.cluster.conftest import Machines, left_over, processes
from tests.cluster.test_ranks import RANKS, WHOLE, check_same
from tests.cluster.test_sandboxes import ON_TWO
from tests.crash.compared import differences
from tests.crash.harness import Chain, Setup, write_package

MANY = "100000"
"""Steps: more than are played before the loss is noticed."""


def test_whoever_asked_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "LOOK_SECONDS", 0.05)
    told: queue.Queue[NotReady] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = head.Watch(f"127.0.0.1:{server.getsockname()[1]}")
        watch.tell(told.put)
        watch.tell(print)
        watch.forget(print)
        for _ in range(3 * head.MISSED):
            server.accept()[0].close()
        assert watch.lost is None
    error = told.get(timeout=60.0)
    assert error is watch.lost
    assert "can no longer be reached" in error.message
    watch.tell(told.put)
    assert told.get(timeout=60.0) is error, "who asks later is told at once"
    assert told.empty()
    watch.close()


def said_in_one_sentence(chain: Chain, said: str) -> None:
    assert said.count("the head of the Ray cluster at") == 1, said
    assert "Traceback" not in said, said
    with Ledger.read(chain.folder) as ledger:
        assert not ledger.check()


def test_a_learner_on_a_cluster_without_a_head(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.node(num_cpus=1)
    alone = Chain(setup=Setup.toy(*WHOLE), runs=tmp_path / "alone", name="toy")
    chain = Chain(setup=Setup(words=(*alone.setup.words, *RANKS)), runs=tmp_path, name="toy")
    launch = chain.launch("--steps", MANY)
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    machines.behead()
    assert launch.wait() == 3, launch.said
    said_in_one_sentence(chain, launch.said)
    assert left_over() == []
    machines.close()
    again = Machines(monkeypatch)
    try:
        again.node(num_cpus=1)
        with Ledger.read(chain.folder) as ledger:
            steps = ("--steps", str(ledger.last_closed_step() + 3))
        assert chain.launch(*steps).wait() == 0, launch.said
        assert left_over() == []
    finally:
        again.close()
    assert alone.launch(*steps).wait() == 0
    check_same(chain.folder, alone.folder)


def test_sandboxes_on_a_cluster_without_a_head_whose_nodes_are_silent_too(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("bubblewrap")
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), "warmup.steps=0", sandbox="bubblewrap", steps=2)
    alone = Chain(setup=setup, runs=tmp_path, name="alone", cache=tmp_path / "cache")
    alone.finish()
    nodes = [machines.node(sandboxes=1) for _ in range(2)]
    words = (*setup.words, *ON_TWO)
    chain = Chain(setup=replace(setup, words=words), runs=tmp_path, name="cluster", cache=tmp_path / "cache")
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "tick" and event.get("stage") == "propose"), launch.said
    for number in processes("SandboxNode"):
        os.kill(number, signal.SIGSTOP)
    machines.behead()
    assert launch.wait() == 3, launch.said
    said_in_one_sentence(chain, launch.said)
    for node in nodes:
        machines.kill(node)
    assert left_over() == []
    machines.close()
    again = Machines(monkeypatch)
    try:
        for _ in range(2):
            again.node(sandboxes=1)
        chain.finish()
        assert left_over() == []
    finally:
        again.close()
    assert differences(chain, alone.folder) == []
