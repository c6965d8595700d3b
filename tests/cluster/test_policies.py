"""Engines as actors on nodes: the replies of one machine, plays that stay where they are, and what a loss costs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from selfplay.cluster import ENGINE_RESOURCE
from selfplay.cluster.policies import refuse_unlike
from selfplay.errors import NotReady
from selfplay.ledger import Ledger
from selfplay.policy import parcels
from tests.cluster import engines_bench as jobs
from tests.cluster.conftest import Machines, left_over, processes
from tests.cluster.engines_bench import Bench
from tests.cluster.test_bad_input import refused
from tests.crash.compared import differences
from tests.crash.harness import Chain, Setup

ON_TWO = ("-s", "run.cluster={sandboxes=0, engines=2, place_seconds=900}")


def hit(number: int) -> None:
    """Send a signal to an engine; a process that is stopped is what a node behind a broken network looks like."""
    os.kill(processes("EngineNode")[0], number)


def test_replies_are_those_of_one_machine_whatever_becomes_of_an_engine(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.node(engines=2)
    monkeypatch.setattr(parcels, "PIECE", 10_000)

    async def dies(bench: Bench) -> None:
        await jobs.loses_one(bench, partial(hit, signal.SIGKILL), monkeypatch, seconds=jobs.WAIT_SECONDS)

    async def falls_silent(bench: Bench) -> None:
        await jobs.loses_one(bench, partial(hit, signal.SIGSTOP), monkeypatch, seconds=15.0)

    bench = Bench(restarts=50)
    bench.use(jobs.samples_alike, jobs.stays, jobs.gives_up, dies, falls_silent)
    assert left_over() == []
    assert "died (" in bench.said[0]
    owed = "open replies are asked of another, an engine is started in its place, and at most 49 after it"
    assert bench.said[0].endswith(owed), bench.said
    assert any("gave no answer to `told` in 15 s" in text for text in bench.said), bench.said
    last = Bench(restarts=0, count=1)
    last.use(lambda one: jobs.loses_the_last(one, partial(hit, signal.SIGKILL)))
    assert left_over() == []


def test_a_run_is_the_same_on_two_nodes_of_which_one_is_killed(machines: Machines, tmp_path: Path) -> None:
    first = machines.node(engines=1)
    said = refused("few", "run.cluster={sandboxes=0, engines=2}", folder=tmp_path)
    assert f"the Ray cluster has 1 of `{ENGINE_RESOURCE}`, and 2 are asked for" in said
    assert "or ask for less: -s 'run.cluster={engines = N}'" in said
    alone = Chain(setup=Setup.toy("policy.threads=1", steps=5), runs=tmp_path, name="alone")
    alone.finish()
    machines.node(engines=1)
    setup = replace(alone.setup, words=(*alone.setup.words, *ON_TWO))
    chain = Chain(setup=setup, runs=tmp_path, name="cluster")
    launch = chain.launch()
    assert launch.wait_for(lambda event: event.get("kind") == "step"), launch.said
    machines.kill(first)
    assert launch.wait() == 0, launch.said
    assert differences(chain, alone.folder) == []
    alarms = [event["data"]["text"] for event in launch.events if event.get("kind") == "alarm"]
    assert any("open replies are asked of another" in text for text in alarms), alarms
    with Ledger.read(chain.folder) as ledger:
        assert "engine_lost" in {alarm.code for alarm in ledger.alarms()}
    assert left_over() == []


@pytest.mark.parametrize(
    ("version", "words", "sentence"),
    [
        ("0.0", "torch 2", "one has selfplay 0.0, and the driver"),
        ("", "torch 1", "one samples with torch 1, and torch 2"),
    ],
)
def test_engines_that_are_not_alike_are_refused(version: str, words: str, sentence: str) -> None:
    from selfplay import __version__

    refuse_unlike("one", __version__, "torch 2", wanted="torch 2")
    with pytest.raises(NotReady, match=sentence) as error:
        refuse_unlike("one", version or __version__, words, wanted="torch 2")
    assert error.value.hint
