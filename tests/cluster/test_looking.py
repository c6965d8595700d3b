"""What `selfplay doctor` says of Ray: installed, named, reached; and what it has."""

from __future__ import annotations

import importlib.metadata
import socket
import time

import pytest

from selfplay.cli import doctor
from selfplay.cluster import looking
from selfplay.errors import NotReady
from tests.cluster.conftest import Machines


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if Ray were, in the version that the tests run."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.60.0")
    return monkeypatch


def only(found: list[looking.Line]) -> looking.Line:
    assert len(found) == 1, found
    return found[0]


def test_nothing_is_said_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert list(doctor._cluster()) == []
    monkeypatch.setenv("RAY_ADDRESS", "host:6379")
    check = next(iter(doctor._cluster()))
    assert (check.name, check.verdict) == ("ray", "warning")
    assert "Ray is not installed" in check.what
    assert "pip install" in check.fix


def test_the_version_is_told(installed: pytest.MonkeyPatch) -> None:
    line = only(list(looking.lines({})))
    assert (line.good, line.what.partition(";")[0]) == (True, "Ray 2.60.0")
    assert "starts a cluster of this machine alone" in line.what
    installed.setattr(importlib.metadata, "version", lambda name: "2.9.3")
    line = only(list(looking.lines({})))
    assert not line.good
    assert line.what.startswith("Ray 2.9.3 is older than 2.50")


@pytest.mark.usefixtures("installed")
def test_an_address_that_is_none_or_where_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    for address, sentence in (
        ("nowhere", "RAY_ADDRESS is `nowhere`"),
        (f"127.0.0.1:{port}", f"no Ray cluster answers at 127.0.0.1:{port}"),
    ):
        version, cluster = looking.lines({"RAY_ADDRESS": address})
        assert version.good
        assert (cluster.name, cluster.good) == ("ray: cluster", False)
        assert sentence in cluster.what
        assert "unset" in cluster.fix


@pytest.mark.usefixtures("ray")
def test_what_answers_and_is_no_cluster_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(NotReady, match=f"at {address}") as error:
            looking.asked(address, seconds=10.0)
        assert time.monotonic() - began < 100.0
    assert error.value.hint


def test_nodes_and_what_they_have(machines: Machines) -> None:
    machines.node(num_cpus=3)
    version, cluster, *nodes = looking.lines({"RAY_ADDRESS": machines.address}, seconds=300.0)
    assert version.good
    assert not cluster.good
    assert "2 nodes, 3 CPU; no place for sandboxes" in cluster.what
    assert f"ray start --address={machines.address} --resources=" in cluster.fix
    machines.node(sandboxes=1)
    _, cluster, *nodes = looking.lines({"RAY_ADDRESS": machines.address}, seconds=300.0)
    assert cluster.good
    assert cluster.what == f"{machines.address} answers: 3 nodes, 3 CPU, 1 selfplay_sandbox"
    assert sorted(node.what.partition(": ")[2] for node in nodes) == [
        "1 selfplay_sandbox",
        "3 CPU",
        "nothing for a run",
    ]
