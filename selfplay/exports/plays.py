"""Plays with what was decided about them, step by step: what tables, logs and trajectories are made of.

Covered: proposals and attempts of closed steps, and, where held-out is asked for, what was played on held-out seeds and
tasks to look at the weights; the step of that is how many were closed by then, of the last evaluation one more than the
last. Not covered: tries that ended in a fault, the open step, an evaluation that is not whole, a warm-up's dev set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from selfplay.exports.seam import Asked
from selfplay.ledger import Reader
from selfplay.types import Group, Seed, Split, Stage, Task, Trajectory, Verdict, record

Side = Literal["proposer", "solver"]


@record
class Play:
    """One trajectory and all that the ledger says of it."""

    trajectory: Trajectory
    side: Side
    split: Split
    seed: Seed | None
    """Where it starts; None where the ledger has no such seed."""
    task: Task | None
    """What an attempt was about, or what a proposal became."""
    verdict: Verdict | None
    """Of `mint` for a proposal, of `judge` for an attempt; None where nothing was decided."""
    grade: Verdict | None
    """What a proposal was paid, once its task was played."""
    group: Group | None
    """The plays that its reward was compared with; None where it was in no group."""
    advantage: float | None

    @property
    def reward(self) -> float | None:
        """What it was paid: a proposal by its grade, an attempt by its verdict."""
        decided = self.grade or self.verdict
        return decided.reward if decided is not None else None

    @property
    def why(self) -> str:
        """What was decided, in a sentence."""
        return self.verdict.why if self.verdict is not None else ""

    @property
    def succeeded(self) -> bool | None:
        """A proposal that became a task, an attempt that solved its; None where nothing was decided."""
        if self.verdict is None or self.verdict.fault is not None:
            return None
        return self.verdict.valid if self.side == "proposer" else self.verdict.passed


def plays(asked: Asked) -> Iterator[Play]:
    """Every play of the steps asked for, proposals before attempts before evaluations."""
    reader = asked.reader
    seeds = {seed.id: seed for seed in reader.seeds()}
    steps, evaluations = asked.steps, asked.evaluations
    for step in sorted({*steps, *evaluations}):
        places = {
            name: (group, advantage)
            for group in reader.groups(step)
            for name, advantage in zip(group.trajectory_ids, group.advantages, strict=True)
        }
        stages: list[Stage] = ["propose", "attempt"] if step in steps else []
        stages += ["evaluate"] if step in evaluations else []
        for stage in stages:
            for play in _stage(reader, step, stage, seeds):
                # note: stage `evaluate` also holds the dev set and what hints are worth, which are of train seeds.
                if stage != "evaluate" or play[2] == "held_out":
                    trajectory, side, split, seed, task, verdict, grade = play
                    group, advantage = places.get(trajectory.id, (None, None))
                    yield Play(
                        trajectory=trajectory,
                        side=side,
                        split=split,
                        seed=seed,
                        task=task,
                        verdict=verdict,
                        grade=grade,
                        group=group,
                        advantage=advantage,
                    )


_Part = tuple[Trajectory, Side, Split, Seed | None, Task | None, Verdict | None, Verdict | None]


def _stage(reader: Reader, step: int, stage: Stage, seeds: dict[str, Seed]) -> Iterator[_Part]:
    minted = reader.verdicts(step, stage, "mint") if stage != "attempt" else {}
    judged = reader.verdicts(step, stage, "judge") if stage != "propose" else {}
    graded = reader.verdicts(step, stage, "grade") if stage == "propose" else {}
    known: dict[str, Task | None] = {}
    for trajectory in reader.trajectories(step, stage):
        proposed = trajectory.subject_id in seeds
        verdict = (minted if proposed else judged).get(trajectory.id)
        task_id = (verdict.task_id if verdict is not None else None) if proposed else trajectory.subject_id
        if task_id is not None and task_id not in known:
            known[task_id] = reader.task(task_id)
        task = known.get(task_id) if task_id is not None else None
        seed = seeds.get(trajectory.subject_id if proposed else (task.seed_id if task is not None else ""))
        split = task.split if task is not None else (seed.split if seed is not None else "train")
        side: Side = "proposer" if proposed else "solver"
        yield trajectory, side, split, seed, task, verdict, graded.get(trajectory.id)
