"""Sandboxes in actors on two nodes: the contract of local ones, the same ledger, and what a lost node costs."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.cluster import Nodes, Wanted, remote
from selfplay.cluster.node import About
from selfplay.cluster.sandboxes import ClusterProvider, refuse_unlike
from selfplay.errors import NotReady
from selfplay.ledger import Ledger
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.conformance import CONTRACT
from selfplay.sandbox.lifecycle import LIFECYCLE
from tests.backends import needed
from tests.cluster.conftest import Machines, left_over, processes
from tests.crash.compared import differences
from tests.crash.harness import Chain, Setup, write_package

TWO = Wanted(nodes=Nodes(sandboxes=2, place_seconds=900.0), ranks=1, threads=1)
ON_TWO = ("-s", "run.cluster={sandboxes=2, place_seconds=900}")
NOT_HERE = ("listed_until_closed",)
"""The owner of a sandbox is the actor that made it."""


def opened(use: Callable[[ClusterProvider, list[str]], Awaitable[None]], kind: str) -> list[str]:
    """Use two sandbox actors; what was said meanwhile."""
    said: list[str] = []

    async def main() -> None:
        provider = await ClusterProvider.open(kind, TWO, say=said.append)
        try:
            await use(provider, said)
        finally:
            await provider.aclose()

    asyncio.run(main())
    assert left_over() == []
    return said


@pytest.mark.bubblewrap
def test_the_contract_of_local_sandboxes_holds(machines: Machines) -> None:
    needed("bubblewrap")
    machines.node(sandboxes=1)
    machines.node(sandboxes=1)

    async def use(provider: ClusterProvider, said: list[str]) -> None:
        assert (provider.name, provider.capabilities.isolated) == ("bubblewrap", True)
        for check in dict.fromkeys((*CONTRACT, *LIFECYCLE)):
            if check.__name__ not in NOT_HERE:
                await check(provider)
        one, two = await provider.create(SandboxSpec(name="python")), await provider.create(SandboxSpec(name="python"))
        assert {left.id for left in await provider.listed()} >= {one.id, two.id}

    # note: the contract asks for sandboxes that cannot be made; that is said once a node.
    said = opened(use, "bubblewrap")
    assert len(said) <= 2, said
    assert all(" made none (" in text for text in said), said


def test_an_actor_that_dies_or_is_silent_is_a_fault_of_the_machine(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process is what a node behind a broken network looks like."""
    machines.node(sandboxes=1)
    machines.node(sandboxes=1)

    async def use(provider: ClusterProvider, said: list[str]) -> None:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            open_ones = [await provider.create(SandboxSpec(name="python")) for _ in range(2)]
            monkeypatch.setattr(remote, "CALL_SECONDS", 10.0)
            hit = processes("SandboxNode")[0]
            os.kill(hit, number)
            results = await asyncio.gather(
                *(one.exec(["true"], timeout_seconds=20.0) for one in open_ones), return_exceptions=True
            )
            assert sum(isinstance(result, SandboxInfraError) for result in results) == 1, results
            assert sorted([await one.alive() for one in open_ones]) == [False, True]
            for one in open_ones:
                await one.close()
            monkeypatch.undo()
            while "there again" not in said[-1]:
                assert "could not be" not in said[-1], said
                await asyncio.sleep(0.1)
        again = [await provider.create(SandboxSpec(name="python")) for _ in range(2)]
        assert [(await one.exec(["true"], timeout_seconds=60.0)).exit_code for one in again] == [0, 0]

    said = opened(use, "local")
    assert "died" in said[0]
    assert "gave no answer to `inside`" in said[2]
    assert said[0].endswith("its 1 open sandboxes are lost, another actor is started, and at most 2 after it"), said


def test_the_code_game_is_the_same_on_two_nodes_of_which_one_is_killed(machines: Machines, tmp_path: Path) -> None:
    needed("bubblewrap")
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), "warmup.steps=0", sandbox="bubblewrap", steps=2)
    alone = Chain(setup=setup, runs=tmp_path, name="alone", cache=tmp_path / "cache")
    alone.finish()
    first, _ = machines.node(sandboxes=1), machines.node(sandboxes=1)
    chain = Chain(
        setup=replace(setup, words=(*setup.words, *ON_TWO)), runs=tmp_path, name="cluster", cache=tmp_path / "cache"
    )
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "tick" and event.get("stage") == "propose"), launch.said
    machines.kill(first)
    assert launch.wait() == 0, launch.said
    assert differences(chain, alone.folder) == []
    alarms = [event["data"]["text"] for event in launch.events if event.get("kind") == "alarm"]
    assert any("open sandboxes are lost" in text for text in alarms), alarms
    assert left_over() == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which is small."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ("mount", "-t", "tmpfs", "-o", "size=96m", "selfplay-test", str(folder))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts nothing: {done.stderr.strip()}")
    yield folder
    subprocess.run(("umount", "--lazy", str(folder)), check=True)


def fill(disk: Path) -> None:
    """Take all the room there is."""
    with contextlib.suppress(OSError), (disk / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def test_a_node_whose_disk_is_full_makes_no_sandboxes_and_others_do(machines: Machines, disk: Path) -> None:
    machines.node(sandboxes=1, env_vars={"TMPDIR": str(disk)})
    machines.node(sandboxes=1)

    async def use(provider: ClusterProvider, said: list[str]) -> None:
        before = [await provider.create(SandboxSpec(name="python")) for _ in range(2)]
        fill(disk)
        words = ["sh", "-c", "echo 1 > file"]
        results = await asyncio.gather(
            *(one.exec(words, timeout_seconds=60.0) for one in before), return_exceptions=True
        )
        faults = [result for result in results if isinstance(result, SandboxInfraError)]
        assert len(faults) == 1, results
        assert "is full" in faults[0].message
        after = [await provider.create(SandboxSpec(name="python")) for _ in range(2)]
        assert [(await one.exec(words, timeout_seconds=60.0)).exit_code for one in after] == [0, 0]
        assert not said, "it was avoided before it could fail again"
        for node in provider._nodes.values():
            node.failed_at = -math.inf
        results = await asyncio.gather(
            *(provider.create(SandboxSpec(name="python")) for _ in range(4)), return_exceptions=True
        )
        assert any(isinstance(result, SandboxInfraError) for result in results), results
        assert "others are asked first for 60 s" in said[0]
        (disk / "full").unlink()

    assert len(opened(use, "local")) == 1


def test_the_code_game_is_the_same_where_the_disk_of_a_node_fills(
    machines: Machines, disk: Path, tmp_path: Path
) -> None:
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), "warmup.steps=0", sandbox="local", steps=2)
    alone = Chain(setup=setup, runs=tmp_path, name="alone", cache=tmp_path / "cache")
    alone.finish()
    machines.node(sandboxes=1, env_vars={"TMPDIR": str(disk)})
    machines.node(sandboxes=1)
    words = (*setup.words, *ON_TWO)
    chain = Chain(setup=replace(setup, words=words), runs=tmp_path, name="cluster", cache=tmp_path / "cache")
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "tick" and event.get("stage") == "propose"), launch.said
    fill(disk)
    assert launch.wait() == 0, launch.said
    with Ledger.read(chain.folder) as ledger:
        assert any("full" in str(fault) or "No space" in str(fault) for fault in ledger.faults()), ledger.faults()
    assert differences(chain, alone.folder) == []
    assert left_over() == []


def about(**changes: object) -> About:
    """A node, alike to all others but for `changes`."""
    from selfplay import __version__
    from selfplay.sandbox.local import LocalProvider

    one = About(
        backend="docker",
        image="selfplay-python:1",
        python="/opt/selfplay/env/bin/python",
        capabilities=LocalProvider.capabilities,
        version=__version__,
        notice="",
        host="one",
        clock=1000.0,
    )
    return replace(one, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": "0.0"}, "one has selfplay 0.0, and the driver"),
        ({"clock": 900.0}, "the clock of one is -130 s from the driver's"),
        (
            {"image": "selfplay-python:2"},
            "the image of one is `selfplay-python:2`, and that of one `selfplay-python:1`",
        ),
        ({"backend": "bubblewrap"}, "the sandbox of one is `bubblewrap`"),
    ],
)
def test_nodes_that_are_not_alike_are_refused(changes: dict[str, object], sentence: str) -> None:
    refuse_unlike(about(), about(), now=1030.0)
    with pytest.raises(NotReady) as refused:
        refuse_unlike(about(**changes), about(), now=1030.0)
    assert sentence in refused.value.message
    assert refused.value.hint
