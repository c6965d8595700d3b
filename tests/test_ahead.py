"""Steps played ahead: bounded age, exactly once through kills, refused where weights are shared."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from selfplay.ahead import Ahead, refuse
from selfplay.choices import unclaimed
from selfplay.config import Config, load
from selfplay.errors import NotReady, UserError
from selfplay.events import Event, Interrupt
from selfplay.flow import Interrupted
from selfplay.ledger import Ledger, Reader, check
from selfplay.plan import plan
from selfplay.project import Project
from selfplay.types import Choice
from tests import copied

STEPS = 8
AHEAD = ("learner.correction=token_truncated", "run.save_every=3", f"run.steps={STEPS}")

CHILD = """
import sys
from pathlib import Path
from selfplay.config import load
from selfplay.project import find_project
from tests import copied
project = find_project(explicit=Path(sys.argv[1]))
config = load("demo", project=project, sets=sys.argv[3:])
copied.play(config, project=project, folder=Path(sys.argv[2]), staleness=2)
"""


def consistent(folder: Path) -> None:
    """Nothing in the ledger contradicts anything else."""
    assert {found.name: found.problems for found in check.checks(folder) if found.problems} == {}


def ages(reader: Reader) -> list[int]:
    """Of each learnt sample: updates between the weights that sampled it first and those that learnt from it."""
    found = []
    for update in reader.updates("play"):
        before = update.policy_version - (update.skipped is None)
        plays = reader.trajectories_by_id(update.trajectory_ids)
        found += [before - play.policy_version[0] for play in plays.values()]
    return found


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_sample_is_older_than_allowed(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project, staleness: int
) -> None:
    config = toy_config(*AHEAD)
    assert copied.play(config, project=project, folder=tmp_path / "run", staleness=staleness) == STEPS
    consistent(tmp_path / "run")
    with Ledger.read(tmp_path / "run") as reader:
        found = ages(reader)
        begun = {step: begun_at(reader, step) for step in range(STEPS)}
        closed = {row.step: row.closed_at for row in reader.step_rows()}
    assert found
    assert min(found) >= 0
    assert max(found) <= staleness
    early = [step for step in range(1, STEPS) if begun[step] < closed[step - 1]]
    assert bool(early) == bool(staleness)
    assert all(begun[step] >= closed[step - 1 - staleness] for step in range(1 + staleness, STEPS))


def begun_at(reader: Reader, step: int) -> float:
    """When its first choice was committed."""
    return float(reader.ask(lambda ask: ask("SELECT min(at) AS at FROM choices WHERE step = ?", step))[0]["at"])


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """What was played and decided so far: table -> key -> the row."""
    with Ledger.read(folder) as reader:

        def found(ask: Any) -> dict[str, dict[str, Any]]:
            plays = ask("SELECT id, step, stop, policy_low, num_sampled, at FROM trajectories")
            verdicts = ask("SELECT trajectory_id || stage AS id, passed, reward, reason, at FROM verdicts")
            chosen = ask("SELECT step || '/' || position AS id, subject_id, terms, at FROM choices")
            return {
                name: {row["id"]: dict(row) for row in part}
                for name, part in (("trajectories", plays), ("verdicts", verdicts), ("choices", chosen))
            }

        return reader.ask(found)


@pytest.mark.slow
def test_kill_9_with_several_steps_open_loses_and_repeats_nothing(
    tmp_path: Path, small: tuple[str, ...], project: Project
) -> None:
    folder, checkout = tmp_path / "run", Path(__file__).parent.parent
    command = [sys.executable, "-c", CHILD, str(checkout), str(folder), *small, *AHEAD]
    kept: Mapping[str, Mapping[str, Any]] = {}
    kills = 0
    for wanted in (20, 80, 10**9):
        child = subprocess.Popen(command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while child.poll() is None and (not (folder / "ledger.db").exists() or plays(folder) < wanted):
            time.sleep(0.1)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        _, stderr = child.communicate(timeout=600)
        assert child.returncode in (0, -signal.SIGKILL), stderr.decode()
        now = rows(folder)
        assert {name: {id: now[name][id] for id in part} for name, part in kept.items()} == kept
        kept = now
    assert kills >= 2
    consistent(folder)
    with Ledger.read(folder) as reader:
        assert reader.last_closed_step() == STEPS - 1
        assert max(ages(reader)) <= 2


def plays(folder: Path) -> int:
    """Trajectories so far."""
    with Ledger.read(folder) as reader:
        return int(reader.ask(lambda ask: ask("SELECT count(*) AS num FROM trajectories"))[0]["num"])


def test_stopping_waits_for_the_steps_ahead_and_the_run_goes_on(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config, interrupt = toy_config(*AHEAD), Interrupt()

    def stop(event: Event) -> None:
        if event.kind == "step" and event.step == 1:
            interrupt.press()

    with pytest.raises(Interrupted):
        copied.play(config, project=project, folder=tmp_path, staleness=1, observe=stop, interrupt=interrupt)
    before = rows(tmp_path)
    assert copied.play(config, project=project, folder=tmp_path, staleness=1) == STEPS
    after = rows(tmp_path)
    assert {name: {id: after[name][id] for id in part} for name, part in before.items()} == before
    consistent(tmp_path)


def test_shared_weights_are_refused_before_anything_is_spent(project: Project, small: tuple[str, ...]) -> None:
    config = load("demo", project=project, sets=[*small, "run.staleness=1"])
    with pytest.raises(UserError, match="changes them in place") as refused:
        plan(config, project)
    assert "run.staleness=0" in (refused.value.hint or "")


def test_replies_of_older_weights_ask_for_a_correction() -> None:
    with pytest.raises(UserError, match=r"learner\.correction is none"):
        refuse(1, shares_weights=False, corrected=False)
    refuse(1, shares_weights=False)
    refuse(0, shares_weights=True, corrected=False)


def test_a_step_that_fails_ahead_of_its_turn_ends_the_wait() -> None:
    ended: list[int] = []

    @dataclass
    class Limits:
        steps: int = 3
        staleness: int = 2

    async def play(step: int) -> int:
        try:
            if step == 1:
                raise NotReady("the machine failed")
            await asyncio.sleep(3600)
        finally:
            ended.append(step)
        return step

    async def main() -> None:
        async with Ahead[int]() as ahead:
            await ahead.of(0, Limits(), play=play)

    with pytest.raises(NotReady):
        asyncio.run(asyncio.wait_for(main(), timeout=60))
    assert sorted(ended) == [0, 1, 2]


def test_two_open_steps_never_make_a_child_of_the_same_attempt() -> None:
    def choice(step: int, mode: Any, **terms: object) -> Choice:
        return Choice(step=step, index=0, mode=mode, subject_id="t", score=1.0, why="by hand", terms=terms)

    claimed = choice(3, "mutate", attempt="a")
    mine = (choice(4, "mutate", attempt="a"), choice(4, "mutate", attempt="b"), choice(4, "replay"))
    assert unclaimed(mine, by=[claimed]) == mine[1:]
