"""Clusters of several Ray nodes on this machine; Ray is in an environment of its own, which `.ci/ray` makes.

`SELFPLAY_REQUIRE_RAY=1` turns a missing Ray into a failure.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.islands import Island

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

        self._island: Island | None = None
        # note: a loaded machine takes more than Ray's minute to start a process.
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setattr("ray._private.node.Node.start_raylet", self._start_raylet())
        self.cluster = Cluster()
        self.head = self.node(num_cpus=0, include_dashboard=False)
        self.address: str = self.cluster.address
        patch.setenv("RAY_ADDRESS", self.address)

    def node(self, *, sandboxes: int = 0, engines: int = 0, island: Island | None = None, **given: Any) -> Any:
        """Add one, on the `island` if there is one; `num_cpus=N`, `env_vars={...}`, as Ray names them."""
        self._island = island
        given = given if island is None else {"node_ip_address": island.address, **given}
        places = {"selfplay_sandbox": sandboxes, "selfplay_engine": engines}
        given = {"num_cpus": 0, **given, "resources": {name: number for name, number in places.items() if number}}
        for left in reversed(range(TRIES)):
            try:
                return self.cluster.add_node(object_store_memory=OBJECTS, **_ports(), **given)
            except Exception:
                # note: a node whose agents are not there in 15 seconds ends itself, as on a loaded machine.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def kill(self, node: Any) -> None:
        """All processes of a node, at once, stopped ones too."""
        below = _all_of(node)
        self.cluster.remove_node(node, allow_graceful=False)
        _signal(below, signal.SIGKILL)

    def stop(self, node: Any) -> None:
        """All processes of a node do nothing any more; its machine still holds their connections."""
        # note: twice, since a process may start another meanwhile.
        _signal(_all_of(node), signal.SIGSTOP)
        _signal(_all_of(node), signal.SIGSTOP)

    def behead(self) -> None:
        """The head's own process dies; its node and all others are left to themselves."""
        _signal([self.head.all_processes["gcs_server"][0].process.pid], signal.SIGKILL)

    def _start_raylet(self) -> Callable[..., Any]:
        """Ray's own way to start a node's first process, but on the island, and without waiting for its agents.

        A node ends itself where its agent has not told a port in 15 seconds; it finds in the file that there is none.
        """
        from ray._private import node as nodes

        start = nodes.Node.start_raylet

        def start_raylet(node: Any, *words: Any, **named: Any) -> Any:
            name = nodes.get_port_filename(node._node_id, "dashboard_agent_listen_port")
            (Path(node._session_dir) / name).write_text("-1")
            with self._island.inside() if self._island is not None else contextlib.nullcontext():
                return start(node, *words, **named)

        return start_raylet

    def close(self) -> None:
        """All nodes."""
        import ray

        ray.shutdown()
        below = [number for node in self.cluster.list_all_nodes() for number in _all_of(node)]
        self.cluster.shutdown()
        _signal(below, signal.SIGKILL)


def _all_of(node: Any) -> list[int]:
    """Processes that a node consists of, and theirs, from the top."""
    found = [info.process.pid for infos in node.all_processes.values() for info in infos]
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        # note: processes end while they are looked at.
        with contextlib.suppress(OSError):
            if place.name.isdecimal():
                parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
                parents.setdefault(int(parent), []).append(int(place.name))
    for number in found:
        found += parents.get(number, [])
    return found


def _signal(numbers: list[int], what: signal.Signals) -> None:
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, what)


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
    kinds = ("SandboxNode", "RankNode", "EngineNode")
    while left := processes(of=of) if of else [pid for kind in kinds for pid in processes(kind)]:
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
