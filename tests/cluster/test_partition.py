"""A node whose link is cut in the middle of a step, for a while or for good; it lives on, on the other side.

A short cut costs time alone; after a long one the node is given up like one that died. Nodes are in network namespaces
of this machine; elsewhere `test_ranks` and `test_sandboxes` stop a node's processes instead.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.ledger import Ledger
from tests.backends import needed
from tests.cluster.conftest import Machines, left_over
from tests.cluster.islands import Island
from tests.cluster.islands import islands as islands
from tests.cluster.test_ranks import _alone as _alone
from tests.cluster.test_ranks import check_same, ranked
from tests.cluster.test_sandboxes import ON_TWO
from tests.crash.compared import differences
from tests.crash.harness import Chain, Launch, Setup, write_package

SHORT_SECONDS = 10.0


def alarms_of(launch: Launch) -> list[str]:
    return [event["data"]["text"] for event in launch.events if event.get("kind") == "alarm"]


@pytest.mark.parametrize("heals", [True, False])
def test_a_learner_behind_a_link_that_is_cut(
    machines: Machines, islands: list[Island], alone: Chain, tmp_path: Path, heals: bool
) -> None:
    island = islands[0]
    machines.node(num_cpus=1, island=island)
    chain = ranked(alone, tmp_path)
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    island.cut()
    if heals:
        time.sleep(SHORT_SECONDS)
        island.heal()
    else:
        machines.node(num_cpus=1)
    assert launch.wait() == 0, launch.said
    assert any("begun anew" in text for text in alarms_of(launch)) == (not heals), launch.events
    with Ledger.read(chain.folder) as ledger:
        assert not ledger.check()
    check_same(chain.folder, alone.folder)
    assert left_over() == []


@pytest.mark.parametrize("heals", [True, False])
def test_sandboxes_behind_a_link_that_is_cut(
    machines: Machines, islands: list[Island], tmp_path: Path, heals: bool
) -> None:
    needed("bubblewrap")
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), "warmup.steps=0", sandbox="bubblewrap", steps=2)
    alone = Chain(setup=setup, runs=tmp_path, name="alone", cache=tmp_path / "cache")
    alone.finish()
    for island in islands:
        machines.node(sandboxes=1, island=island)
    words = (*setup.words, *ON_TWO)
    chain = Chain(setup=replace(setup, words=words), runs=tmp_path, name="cluster", cache=tmp_path / "cache")
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "tick" and event.get("stage") == "propose"), launch.said
    islands[0].cut()
    if heals:
        time.sleep(SHORT_SECONDS)
        islands[0].heal()
    else:
        machines.node(sandboxes=1)
    assert launch.wait() == 0, launch.said
    assert differences(chain, alone.folder) == []
    assert any("open sandboxes are lost" in text for text in alarms_of(launch)) == (not heals), alarms_of(launch)
    assert left_over() == []
