"""Signs of life: one that is slow gives them, one that is gone does not, and what waits for it fails."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest

from selfplay.cluster import Nodes, Wanted, joining, silence
from selfplay.cluster.connections import End, ends
from tests.cluster.conftest import Machines, left_over

WAITS = 40
SECONDS = 20.0
"""Of silence, here."""


class Busy:
    """Computes without a pause, and gives signs of life beside it, as `RankNode` does."""

    def alive(self) -> set[End]:
        return ends()

    def connect(self, port: int) -> int:
        self.line = socket.create_connection(("127.0.0.1", port))
        return os.getpid()

    def work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(10_000))


def test_silence_and_not_slowness_is_a_loss(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    machines.node(num_cpus=1)
    monkeypatch.setattr(silence, "SILENT", WAITS)
    monkeypatch.setattr(silence, "WAIT_SECONDS", SECONDS / WAITS)
    wanted = Wanted(nodes=Nodes(sandboxes=0), ranks=2, threads=1)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        joining.join(wanted.resources, part="CPU")
        actor = ray.remote(concurrency_groups={silence.GROUP: 1})(Busy).options(num_cpus=1).remote()
        process = ray.get(actor.connect.remote(server.getsockname()[1]))
        ours, _ = server.accept()
        waiting = threading.Thread(target=lambda: heard.append(ours.recv(1)))
        waiting.start()
        signs = silence.Signs()
        signs.begin({1: actor})
        ray.get(actor.work.remote(2 * SECONDS))
        assert signs.lost is None, "it was busy all the time"
        os.kill(process, signal.SIGSTOP)
        waiting.join(600.0)
        assert heard == [b""]
        assert signs.lost is not None
        assert signs.lost.message == f"rank 1 of the learner gave no sign of life for {SECONDS:g} s"
        os.kill(process, signal.SIGKILL)
        signs.close()
        ours.close()
        joining.leave()
    assert left_over() == []
