"""A small run whose every row is written by hand, so that the screens can be compared with what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from selfplay.config import load
from selfplay.ledger import Ledger
from selfplay.project import find_project
from selfplay.types import (
    Choice,
    Group,
    Seed,
    Stage,
    Stop,
    Task,
    Trajectory,
    Turn,
    Update,
    Verdict,
    VerdictStage,
    digest,
    play_id,
    task_id,
)

GARBAGE = "\x1b[31mred\x1b]0;title\x07 [bold]markup[/bold] \x00 end"
"""A reply that would recolour the screen, set the window's title and break markup."""

DIGEST = "0" * 32
"""Not the preset's, so that the ids, which it decides, stay the same when the preset changes."""

DIFF = "--- a/word.py\n+++ b/word.py\n@@ -1 +1 @@\n-ab\n+b"


@pytest.fixture(scope="session")
def played_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder named `small`: one step is closed, one open; of two proposals a step one is valid."""
    return write_run(tmp_path_factory.mktemp("project") / "runs" / "small")


def write_run(folder: Path) -> Path:
    """That run in `folder`, made there by hand."""
    config = load("demo", project=find_project(explicit=None), sets=["run.steps=3"], environ={})
    seed = Seed(id=digest("s"), game="echo", source="echo:0", payload={"length": 2}, split="train")
    with Ledger.create(folder, config_digest=DIGEST, config=config.values(), seed=0, game="echo") as ledger:
        config.write(folder)
        ledger.append(seed).result()
        for step in (0, 1):
            why = "played least often"
            choice = Choice(step=step, index=0, mode="propose", subject_id=seed.id, score=1.0, why=why)
            ledger.append(choice).result()
            _play_step(ledger, DIGEST, step=step, seed=seed, closed=step == 0)
        ledger.append_alarm(level="warning", code="drift", message="something to look at").result()
        ledger.end_launch("interrupted")
    return folder


def _play_step(ledger: Ledger, config_digest: str, *, step: int, seed: Seed, closed: bool) -> None:
    good = _trajectory(config_digest, step, "propose", "echo_proposer", seed.id, 0, "ab")
    bad = _trajectory(config_digest, step, "propose", "echo_proposer", seed.id, 1, GARBAGE)
    task = Task(
        id=task_id(config_digest, game="echo", key=f"ab{step}"),
        game="echo",
        seed_id=seed.id,
        key=f"ab{step}",
        payload={"word": "ab", "source": "def f():\n    return 1\n"},
        split="train",
        step=step,
        parent_id=good.id,
    )
    ledger.append(good, bad).result()
    ledger.append(
        task,
        _verdict(good, "mint", valid=True, reason="valid", why="a word of 2 letters", task_id=task.id),
        _verdict(bad, "mint", valid=False, reason="not_a_word", why="the reply holds other characters"),
    ).result()
    if not closed:
        return
    attempts = [
        _trajectory(config_digest, step, "attempt", "echo_solver", task.id, index, word)
        for index, word in enumerate(("ab", "b"))
    ]
    evidence = {"diff": DIFF, "failing": [["test_word", "assert 'b' == 'ab'"]], "num_tests": 7}
    wrong = {"passed": False, "reward": -1.0, "reason": "other_word", "why": "it is another word", "evidence": evidence}
    ledger.append(*attempts).result()
    ledger.append(
        _verdict(attempts[0], "judge", passed=True, reward=1.0, reason="passed", why="it is the word"),
        _verdict(attempts[1], "judge", **wrong),
        _verdict(good, "grade", reward=0.1, reason="graded", why="1 of 2 attempts solved it", task_id=task.id),
        _verdict(bad, "grade", valid=False, reward=-1.0, reason="graded", why="invalid"),
    ).result()
    plays = [good, bad, *attempts]
    ledger.close_step(
        step=step,
        groups=[_group([good, bad], (0.1, -1.0)), _group(attempts, (1.0, -1.0))],
        update=_update(step, plays),
        stage_seconds={"sampling": 2.0, "verification": 1.0, "learning": 1.0},
        counts={"tasks": 1, "groups": 2, "informative": 2},
    )


def _trajectory(
    config_digest: str, step: int, stage: Stage, role: str, subject_id: str, index: int, reply: str
) -> Trajectory:
    return Trajectory(
        id=play_id(config_digest, step=step, stage=stage, role=role, subject_id=subject_id, index=index, attempt=0),
        step=step,
        stage=stage,
        role=role,
        subject_id=subject_id,
        index=index,
        turns=(
            Turn(speaker="prompt", token_ids=(1, 2), text="write ??"),
            Turn(speaker="policy", token_ids=(3, 4, 5), logprobs=(-0.1, -0.2, -0.3), text=reply),
        ),
        stop=Stop.DONE,
        policy_version=(step, step),
        seconds=0.5,
    )


def _verdict(trajectory: Trajectory, stage: VerdictStage, **parts: Any) -> Verdict:
    known: dict[str, Any] = {"valid": True, "passed": None, "reward": None, **parts}
    return Verdict(trajectory_id=trajectory.id, stage=stage, **known)


def _group(members: list[Trajectory], rewards: tuple[float, ...]) -> Group:
    first = members[0]
    return Group(
        id=first.group_id,
        step=first.step,
        role=first.role,
        subject_id=first.subject_id,
        trajectory_ids=tuple(member.id for member in members),
        rewards=rewards,
        advantages=(0.7, -0.7),
        informative=True,
    )


def _update(step: int, plays: list[Trajectory]) -> Update:
    return Update(
        step=step,
        phase="play",
        policy_version=step + 1,
        trajectory_ids=tuple(play.id for play in plays),
        advantages=(0.7, -0.7, 0.7, -0.7),
        partition=((0, 1, 2, 3),),
        old_logprobs=tuple((-0.1, -0.2, -0.3) for _ in plays),
        lr=1e-3,
        weights_digest=digest("weights", step),
        reference_digest=None,
        fingerprint="test",
        loss=0.5,
        grad_norm=1.0,
        tokens=12,
        seconds=0.1,
    )
