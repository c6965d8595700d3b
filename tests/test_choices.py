"""What a choice may be of: seeds and tasks that are there, failed attempts of earlier steps once and one level deep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from selfplay.choices import Parent, refuse_spent, subjects
from selfplay.errors import RunFailed
from selfplay.types import Choice, Seed, Stop, Task, Trajectory, Verdict

SEED = Seed(id="s", game="echo", source="echo:0", payload={}, split="train")
KEPT = replace(SEED, id="h", split="held_out")


def play(name: str, stage: Any, subject: str, *, step: int = 0) -> Trajectory:
    return Trajectory(
        id=name,
        step=step,
        stage=stage,
        role="r",
        subject_id=subject,
        index=0,
        turns=(),
        stop=Stop.DONE,
        policy_version=(0, 0),
    )


def task(name: str, parent: str | None, **other: Any) -> Task:
    given = {"seed_id": "s", "key": name, "payload": {}, "split": "train", "step": 0, **other}
    return Task(id=name, game="echo", parent_id=parent, **given)


def verdict(name: str, stage: Any = "judge", *, passed: bool | None = None) -> Verdict:
    return Verdict(trajectory_id=name, stage=stage, valid=True, passed=passed, reward=None, reason="r", why="w")


@dataclass
class Kept:
    """A task `first` with a failed, a solved and a late attempt, and a `child` of the failed one."""

    tasks: Sequence[Task] = (task("first", "proposal"), task("child", "failed"), task("given", None))
    plays: Sequence[Trajectory] = (
        play("proposal", "propose", "s"),
        play("failed", "attempt", "first"),
        play("solved", "attempt", "first"),
        play("late", "attempt", "first", step=3),
        play("grand", "attempt", "child", step=1),
        play("elsewhere", "attempt", "given"),
    )
    verdicts: Mapping[str, Sequence[Verdict]] = field(
        default_factory=lambda: {
            name: (verdict(name, passed=name == "solved"),) for name in ("failed", "solved", "late", "elsewhere")
        }
    )

    def task(self, task_id: str) -> Task | None:
        return next((one for one in self.tasks if one.id == task_id), None)

    def trajectories_by_id(self, ids: Iterable[str]) -> Mapping[str, Trajectory]:
        wanted = set(ids)
        return {one.id: one for one in self.plays if one.id in wanted}

    def verdicts_of(self, trajectory_id: str) -> Sequence[Verdict]:
        return self.verdicts.get(trajectory_id, ())


def chosen(mode: Any, subject: str, **terms: object) -> Choice:
    return Choice(step=3, index=0, mode=mode, subject_id=subject, score=1.0, why="by hand", terms=terms)


def test_each_choice_is_of_its_subject() -> None:
    kept = Kept()
    rows = [chosen("mutate", "first", attempt="failed"), chosen("replay", "child"), chosen("propose", "s")]
    found = subjects(rows, [SEED, KEPT], kept)
    assert (found.seeds, found.tasks) == ((SEED,), (kept.tasks[1],))
    assert found.parents == (Parent(task=kept.tasks[0], attempt=kept.plays[1]),)


@pytest.mark.parametrize(
    ("subject", "attempt", "message"),
    [
        ("nothing", "failed", "chose task nothing, which the ledger does not have"),
        ("child", "grand", "a child of task child, which is a child itself"),
        ("first", "", "attempt '' for a child of task first, which no earlier step has"),
        ("first", "elsewhere", "attempt 'elsewhere' for a child of task first, which no earlier step has"),
        ("first", "proposal", "attempt 'proposal' for a child of task first, which no earlier step has"),
        ("first", "late", "attempt 'late' for a child of task first, which no earlier step has"),
        ("first", "solved", "attempt solved for a child, which did not fail"),
    ],
)
def test_what_can_have_no_child_is_refused(subject: str, attempt: str, message: str) -> None:
    with pytest.raises(RunFailed, match=message):
        subjects([chosen("mutate", subject, attempt=attempt)], [SEED], Kept())


def test_a_given_task_may_be_a_parent_and_a_held_out_one_may_not() -> None:
    kept = Kept()
    assert subjects([chosen("mutate", "given", attempt="elsewhere")], [SEED], kept).parents[0].task.parent_id is None
    apart = Kept(tasks=[replace(one, split="held_out") for one in kept.tasks])
    with pytest.raises(RunFailed, match="which is held out"):
        subjects([chosen("mutate", "given", attempt="elsewhere")], [SEED], apart)


def test_an_attempt_is_chosen_once() -> None:
    again = [chosen("mutate", "first", attempt="failed")]
    refuse_spent(again, Kept())
    with pytest.raises(RunFailed, match="attempt failed for a child once more"):
        refuse_spent(again, Kept(verdicts={"failed": (verdict("failed"), verdict("failed", "mint"))}))
