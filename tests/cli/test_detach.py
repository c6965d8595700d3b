"""`selfplay run --detach`: a process of its own holds the run when the answer comes, and `stop` ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger
from selfplay.ledger.lock import holder

Typed = tuple[int, str, str]
LONG = ("--steps", "100000", "-s", "play.proposals=4", "-s", "curriculum.seeds=2")


def test_it_plays_on_until_it_is_stopped(
    here: Path, typed: Callable[..., Typed], spawned: Callable[..., Typed]
) -> None:
    code, out, err = spawned("demo", *LONG, "--name", "long", "--detach", "--json")
    assert code == 0, err
    message = json.loads(out)
    assert (message["schema"], message["run"]) == ("selfplay.launch/1", "long")
    data: dict[str, Any] = message["data"]
    held = holder(here / "runs" / "long")
    try:
        assert held is not None
        assert held.pid == data["pid"]
        assert typed(*data["watch"].split()[1:])[0] == 0
        assert typed("demo", *LONG, "--name", "long", "--detach")[0] == 4
    finally:
        assert typed("stop", "long", "--wait")[0] == 0
    assert holder(here / "runs" / "long") is None
    assert Path(data["log"]).is_file()
    assert typed("check", "long")[0] == 0


def test_another_run_of_a_name_has_that_runs_settings(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("run", "--new", "--name", "toy", "--steps", "1", "--detach")
    assert code == 0, err
    folder, until = with_run / "runs" / "toy-2", time.monotonic() + 600
    while holder(folder) is not None and time.monotonic() < until:
        time.sleep(0.05)
    with Ledger.read(with_run / "runs" / "toy") as one, Ledger.read(folder) as other:
        assert other.run_row().config_digest == one.run_row().config_digest
        assert other.last_closed_step() == 0


@pytest.mark.parametrize(("words", "code"), [(("-s", "run.stepz=1"), 2), (("--sandbox", "nothing"), 2)])
def test_what_is_wrong_is_said_at_once(
    here: Path, typed: Callable[..., Typed], words: tuple[str, ...], code: int
) -> None:
    assert typed("demo", "--detach", *words)[0] == code
    assert not (here / "runs" / "demo").exists()


def test_what_a_process_said_before_it_ended_is_shown(here: Path, typed: Callable[..., Typed]) -> None:
    """Weights without the ledger that knows them are not written over."""
    (here / "runs" / "demo" / "weights" / "step_000001").mkdir(parents=True)
    code, _, err = typed("demo", "--detach")
    assert code == 1
    assert err.startswith("error: the process ended with exit code ")
    assert "error: " in err.partition("\n\n")[2]
    assert "hint: all it said: " in err
