"""Copies of a task: those of its step share it and the reward less a term, later ones are refused before any solver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from selfplay import loop
from selfplay.build import assemble
from selfplay.config import Config
from selfplay.events import Interrupt, ignore
from selfplay.games import Minted
from selfplay.games.echo import EchoGame
from selfplay.ledger import Ledger, Reader
from selfplay.project import Project
from selfplay.types import Seed, Trajectory, task_id

STEPS, PROPOSALS = 4, 64


class Remembering(EchoGame):
    """The toy game where a word is the same task in every step."""

    def __init__(self, game: EchoGame) -> None:
        self.__dict__.update(game.__dict__)

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        minted = await super().mint(proposal, seed)
        if minted.task is None:
            return minted
        key = str(minted.task.payload["word"])
        task = replace(minted.task, key=key, id=task_id(self._config_digest, game="echo", key=key))
        return Minted(verdict=replace(minted.verdict, task_id=task.id), task=task)


@pytest.fixture(scope="module")
def reader(
    tmp_path_factory: pytest.TempPathFactory, toy_config: Callable[..., Config], project: Project
) -> Iterator[Reader]:
    """Steps in which words come again."""
    config = toy_config(f"run.steps={STEPS}", f"play.proposals={PROPOSALS}", "play.refills=0", "rewards.novelty=0.5")
    folder, values = tmp_path_factory.mktemp("copies") / "run", config.values()

    async def main(ledger: Ledger) -> None:
        interrupt = Interrupt()
        parts = assemble(config, project=project, folder=folder, ledger=ledger, observe=ignore, interrupt=interrupt)
        async with parts as run:
            assert isinstance(run.game, EchoGame)
            await loop.run(replace(run, game=Remembering(run.game)))

    with Ledger.create(folder, config_digest=config.digest, config=values, seed=0, game="echo") as ledger:
        asyncio.run(main(ledger))
    with Ledger.read(folder) as opened:
        yield opened


def verdicts(reader: Reader, stage: Any) -> Iterator[tuple[int, Any]]:
    for step in range(STEPS):
        for verdict in reader.verdicts(step, "propose", stage).values():
            yield step, verdict


def test_a_copy_of_an_earlier_task_is_refused_and_nobody_attempts_it(reader: Reader) -> None:
    again = [(step, verdict) for step, verdict in verdicts(reader, "mint") if verdict.reason == "duplicate"]
    assert again, "no word came again"
    for step, verdict in again:
        earlier = reader.task(verdict.evidence["copy_of"])
        assert earlier is not None
        assert earlier.step < step
        assert (verdict.valid, verdict.task_id) == (False, None)
        assert verdict.why == f"the same task was minted in step {earlier.step}"
        assert earlier.id not in {t.subject_id for t in reader.trajectories(step, "attempt")}
    names = {verdict.trajectory_id for _, verdict in again}
    paid = [verdict.reward for _, verdict in verdicts(reader, "grade") if verdict.trajectory_id in names]
    assert paid == [-1.0] * len(again)


def test_copies_of_a_step_share_the_task_and_the_reward_less_a_term(reader: Reader) -> None:
    made = Counter((step, verdict.task_id) for step, verdict in verdicts(reader, "mint") if verdict.task_id)
    assert max(made.values()) > 1, "no word came twice in a step"
    grades = {verdict.trajectory_id: verdict for _, verdict in verdicts(reader, "grade")}
    for (step, task), copies in made.items():
        assert len([t for t in reader.trajectories(step, "attempt") if t.subject_id == task]) == 4
        shared = [grades[v.trajectory_id] for s, v in verdicts(reader, "mint") if (s, v.task_id) == (step, task)]
        assert len({grade.reward for grade in shared}) == 1
        loss = -0.5 * (copies - 1) / PROPOSALS
        assert shared[0].parts.get("novelty", 0.0) == pytest.approx(loss)
