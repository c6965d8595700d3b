"""Clusters of several Ray nodes on this machine; Ray is in an environment of its own, which `.ci/ray` makes.

`SELFPLAY_REQUIRE_RAY=1` turns a missing Ray into a failure.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
OBJECTS = 80 << 20
TRIES = 4
"""Of a node's start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder's tests, one after the other: a cluster takes a gigabyte."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.xdist_group("ray"))
            # note: Ray leaves what it does not need any more to the collector, and warns of its own parts.
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def ray() -> None:
    """Ray is here."""
    if importlib.util.find_spec("ray") is None:
        sentence = "ray is not installed: .ci/ray makes an environment with it"
        pytest.fail(sentence) if os.environ.get("SELFPLAY_REQUIRE_RAY") == "1" else pytest.skip(sentence)


class Machines:
    """A cluster whose nodes are processes of this machine; the head has no place for anything."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.node(num_cpus=0, include_dashboard=False)
        self.address: str = self.cluster.address
        patch.setenv("RAY_ADDRESS", self.address)

    def node(self, *, sandboxes: int = 0, **given: Any) -> Any:
        """Add one; `num_cpus=N`, `env_vars={...}`, as Ray names them."""
        given = {"num_cpus": 0, **given, "resources": {"selfplay_sandbox": sandboxes} if sandboxes else {}}
        for left in reversed(range(TRIES)):
            try:
                return self.cluster.add_node(object_store_memory=OBJECTS, **_ports(), **given)
            except Exception:
                # note: a node whose agents are not there in 15 seconds ends itself, as on a loaded machine.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def kill(self, node: Any) -> None:
        """All processes of a node, at once."""
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """All nodes."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


def _ports() -> dict[str, int]:
    """Of a node's agents: it waits for those that it is not given."""
    names = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port", "metrics_export_port")
    with_sockets = [(name, socket.create_server(("", 0))) for name in names]
    ports = {name: held.getsockname()[1] for name, held in with_sockets}
    for _, held in with_sockets:
        held.close()
    return ports


def processes(actor: str = "", *, of: int | None = None) -> list[int]:
    """Processes of the class `actor`, or of any, in a cluster that the process `of` (None: this one) has made."""
    session = f"_{of or os.getpid()}/logs/"
    found = []
    for place in Path("/proc").iterdir():
        # note: processes end while they are looked at.
        with contextlib.suppress(OSError):
            alike = place.name.isdecimal() and (place / "cmdline").read_bytes().decode().startswith(f"ray::{actor}")
            if alike and any(session in os.readlink(held) for held in (place / "fd").iterdir()):
                found.append(int(place.name))
    return sorted(found)


def left_over(*, of: int | None = None) -> list[int]:
    """Actors that are still there a while after their driver; with `of`, whatever of its cluster is."""
    # note: Ray's own agents end a minute after their node.
    until = time.monotonic() + 180.0
    while left := processes(of=of) if of else [*processes("SandboxNode"), *processes("RankNode")]:
        if time.monotonic() > until:
            return left
        time.sleep(0.2)
    return []


@pytest.fixture
def machines(ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """A cluster of a head alone; nodes are added by the test."""
    made = Machines(monkeypatch)
    yield made
    made.close()
