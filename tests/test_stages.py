"""Stages: faults of the machine are retried and never become rewards; copies share a task; order is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from selfplay import loop
from selfplay.build import assemble
from selfplay.config import Config
from selfplay.errors import NotReady
from selfplay.events import Interrupt, ignore
from selfplay.flow import each, in_order
from selfplay.games.echo import EchoGame
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.stages import Clock, Interrupted, Played, Progress
from selfplay.types import Fault, Stop, Task, Trajectory, Turn, Verdict

BROKEN = Fault(culprit="sandbox", where="sandbox.create", message="the engine does not answer")


class Flaky(EchoGame):
    """The toy game on a machine whose verifier breaks `times` times for each attempt `chosen` picks."""

    def __init__(self, game: EchoGame, *, times: int, chosen: Callable[[Trajectory], bool]) -> None:
        self.__dict__.update(game.__dict__)
        self.times = times
        self.chosen = chosen
        self.tries: dict[str, int] = {}

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        verdict = await super().judge(attempt, task)
        tries = self.tries[attempt.id] = self.tries.get(attempt.id, 0) + 1
        if self.chosen(attempt) and tries <= self.times:
            return replace(verdict, passed=None, reward=None, reason="fault", why=BROKEN.message, fault=BROKEN)
        return verdict


def play_flaky(
    folder: Path, config: Config, project: Project, *, times: int, chosen: Callable[[Trajectory], bool]
) -> None:
    async def main(ledger: Ledger) -> None:
        interrupt = Interrupt()
        parts = assemble(config, project=project, folder=folder, ledger=ledger, observe=ignore, interrupt=interrupt)
        async with parts as run:
            assert isinstance(run.game, EchoGame)
            await loop.run(replace(run, game=Flaky(run.game, times=times, chosen=chosen)))

    values: dict[str, Any] = config.values()
    create = Ledger.open(folder) if (folder / "ledger.db").exists() else None
    with create or Ledger.create(folder, config_digest=config.digest, config=values, seed=0, game="echo") as ledger:
        asyncio.run(main(ledger))


def test_a_fault_is_retried_counted_and_then_decided(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config = toy_config("run.steps=2", "play.tries=3")
    play_flaky(tmp_path, config, project, times=2, chosen=lambda t: t.index == 0)
    with Ledger.read(tmp_path) as ledger:
        attempts = ledger.trajectories(0, "attempt") + ledger.trajectories(1, "attempt")
        verdicts = ledger.verdicts(0, "attempt", "judge") | ledger.verdicts(1, "attempt", "judge")
        assert all(v.reward is not None for v in verdicts.values())
        assert len(ledger.faults()) == 2 * sum(t.index == 0 for t in attempts)


def test_what_the_machine_never_decided_has_no_reward_and_no_group(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config = toy_config("run.steps=3", "play.tries=2")
    play_flaky(tmp_path, config, project, times=99, chosen=lambda t: t.index == 0)
    with Ledger.read(tmp_path) as ledger:
        undecided = set()
        for step in range(3):
            verdicts = ledger.verdicts(step, "attempt", "judge")
            undecided |= {v.trajectory_id for v in verdicts.values() if v.fault}
            members = {m for group in ledger.groups(step) for m in group.trajectory_ids}
            assert not undecided & members
            assert all(v.reward is None and v.passed is None for v in verdicts.values() if v.fault)
        assert undecided


def test_a_broken_machine_stops_the_run_and_its_attempts_stay_owed(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config = toy_config("run.steps=8", "play.tries=1")
    with pytest.raises(NotReady, match="does not answer"):
        play_flaky(tmp_path, config, project, times=99, chosen=lambda t: True)
    with Ledger.read(tmp_path) as ledger:
        step = ledger.last_closed_step() + 1
        assert ledger.trajectories(step, "attempt")
        assert ledger.verdicts(step, "attempt", "judge") == {}
    play_flaky(tmp_path, config, project, times=0, chosen=lambda t: False)
    with Ledger.read(tmp_path) as ledger:
        assert ledger.last_closed_step() == 7


def test_results_come_in_the_order_of_the_jobs() -> None:
    async def job(index: int) -> Any:
        await asyncio.sleep(0.01 * (3 - index))
        return index

    def commit(played: Played | None) -> list[Any]:
        return [] if played is None else [played]

    async def main() -> list[Any]:
        return await in_order(each([partial(job, i) for i in range(4)]), commit, Interrupt())

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_level_two_cancels_what_is_in_flight() -> None:
    interrupt = Interrupt()

    async def main() -> None:
        async def forever() -> Any:
            await asyncio.sleep(3600)

        async def press() -> Any:
            interrupt.press()
            interrupt.press()
            await asyncio.sleep(3600)

        await in_order(each([forever, press]), lambda played: [], interrupt)

    with pytest.raises(Interrupted):
        asyncio.run(asyncio.wait_for(main(), timeout=10))


def test_the_clock_counts_overlapping_work_once() -> None:
    clock = Clock()
    clock.take()
    began = time.monotonic()
    with clock.doing("verification"):
        with clock.doing("sampling"):
            time.sleep(0.02)
        time.sleep(0.01)
    whole = time.monotonic() - began
    seconds = clock.take()
    assert seconds["sampling"] >= 0.02
    assert seconds["verification"] >= 0.01
    assert sum(seconds.values()) <= whole + 0.01
    assert clock.take().keys() <= {"other"}


def test_progress_counts_what_the_screen_shows() -> None:
    turn = Turn(speaker="policy", token_ids=(1, 2), logprobs=(-1.0, -1.0))
    trajectory = Trajectory(
        id="t",
        step=0,
        stage="attempt",
        role="r",
        subject_id="s",
        index=0,
        turns=(turn,),
        stop=Stop.DONE,
        policy_version=(0, 0),
    )
    verdict = Verdict(trajectory_id="t", stage="judge", valid=True, passed=False, reward=-1.0, reason="r", why="w")
    progress = Progress(total=3)
    progress.after(Played(trajectory=trajectory, verdict=verdict))
    data = progress.after(Played(trajectory=trajectory, verdict=replace(verdict, valid=False, passed=True)))
    assert (data["done"], data["total"], data["valid"], data["solved"], data["tokens"]) == (2, 3, 1, 1, 4)
