"""Small real records, made from a few words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import selfplay
from selfplay.ledger import Ledger
from selfplay.types import (
    Choice,
    Group,
    Save,
    Seed,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    Update,
    Verdict,
    play_id,
    task_id,
)

CONFIG = "c0"


class Make:
    """Records of a run of `echo` whose configuration's digest is `c0`."""

    config_digest = CONFIG

    def seed(self, name: str = "s0", **other: Any) -> Seed:
        given = {"game": "echo", "source": f"echo:{name}", "payload": {"word": "ab"}, "split": "train", **other}
        return Seed(id=name, **given)

    def choice(self, step: int = 0, index: int = 0, **other: Any) -> Choice:
        return Choice(
            **{"mode": "propose", "subject_id": "s0", "score": 0.5, "why": "never played", **other},
            step=step,
            index=index,
        )

    def turns(self) -> tuple[Turn, ...]:
        call = ToolCall(name="shell", arguments={"cmd": "ls"}, result="a.py\n", exit_code=0, seconds=0.25)
        return (
            Turn(speaker="prompt", token_ids=(5, 6, 7), text="say "),
            Turn(speaker="policy", token_ids=(8, 9), logprobs=(-0.5, -0.25), text="ab", calls=(call,)),
            Turn(speaker="tool", token_ids=(10,), text="a.py\n"),
            Turn(speaker="policy", token_ids=(11,), logprobs=(-1.0,), text="."),
        )

    def play(self, step: int = 0, stage: str = "propose", index: int = 0, **other: Any) -> Trajectory:
        role = "proposer" if stage == "propose" else "solver"
        given = {"role": role, "subject_id": "s0", "attempt": 0, "seconds": 1.5, **other}
        place = {name: given[name] for name in ("role", "subject_id", "attempt")}
        return Trajectory(
            **{
                "id": play_id(CONFIG, step=step, stage=stage, index=index, **place),  # type: ignore[arg-type]
                "turns": self.turns(),
                "stop": Stop.DONE,
                "policy_version": (step, step),
                **given,
            },
            step=step,
            stage=stage,  # type: ignore[arg-type]
            index=index,
        )

    def task(self, key: str = "ab", **other: Any) -> Task:
        given = {"seed_id": "s0", "payload": {"word": key}, "split": "train", "step": 0, **other}
        return Task(id=task_id(CONFIG, game="echo", key=key), game="echo", key=key, **given)

    def verdict(self, trajectory: Trajectory, stage: str = "judge", **other: Any) -> Verdict:
        given = {"valid": True, "passed": None, "reward": None, "reason": "ok", "why": "it is right", **other}
        return Verdict(trajectory_id=trajectory.id, stage=stage, **given)  # type: ignore[arg-type]

    def group(self, members: list[Trajectory], rewards: tuple[float, ...]) -> Group:
        mean = sum(rewards) / len(rewards)
        return Group(
            id=members[0].group_id,
            step=members[0].step,
            role=members[0].role,
            subject_id=members[0].subject_id,
            trajectory_ids=tuple(member.id for member in members),
            rewards=rewards,
            advantages=tuple(reward - mean for reward in rewards),
            informative=len(set(rewards)) > 1,
        )

    def update(self, step: int = 0, phase: str = "play", **other: Any) -> Update:
        given = {
            "policy_version": step + 1,
            "trajectory_ids": ("t0", "t1"),
            "advantages": (0.1, -0.1),
            "partition": ((0,), (1,)),
            "old_logprobs": ((-0.5, -0.1), (-0.25,)),
            "lr": 1e-6,
            "weights_digest": f"w{step}",
            "reference_digest": None,
            "fingerprint": "torch 0",
            "loss": 0.5,
            "grad_norm": 1.25,
            "tokens": 3,
            "seconds": 2.0,
            "metrics": {"entropy": 1.5},
        }
        return Update(step=step, phase=phase, **{**given, **other})  # type: ignore[arg-type]

    def save(self, step: int = 0, **other: Any) -> Save:
        given = {"phase": "play", "policy_version": step + 1, "path": f"weights/step_{step:06d}", "num_bytes": 7}
        return Save(**{**given, "weights_digest": f"w{step}", "state_digest": f"m{step}", **other}, step=step)

    def step(self, ledger: Ledger, step: int) -> None:
        """A whole small step: one choice, one proposal, its task, two attempts, an update."""
        ledger.append(self.seed(), self.choice(step))
        proposal, task = self.play(step), self.task(f"word {step}", step=step)
        task = replace(task, parent_id=proposal.id)
        attempts = [self.play(step, "attempt", i, subject_id=task.id) for i in range(2)]
        ledger.append(proposal)
        ledger.append(task, self.verdict(proposal, "mint", task_id=task.id))
        for i, attempt in enumerate(attempts):
            ledger.append(attempt)
            ledger.append(
                self.verdict(attempt, passed=i == 0, reward=1.0 - 2 * i, reason="equal" if i == 0 else "other")
            )
        ledger.append(self.verdict(proposal, "grade", reward=0.1))
        self.close(ledger, step, groups=[self.group(attempts, (1.0, -1.0))])

    def close(self, ledger: Ledger, step: int, groups: list[Group] | None = None, **other: Any) -> None:
        given: dict[str, Any] = {"update": self.update(step), "stage_seconds": {"sampling": 1.0}, "counts": {"n": 1}}
        ledger.close_step(step=step, groups=groups or [], **{**given, **other})


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


Create = Callable[..., Ledger]


@pytest.fixture
def create() -> Create:
    """Make a ledger in a folder."""

    def make_ledger(folder: Path, config: Mapping[str, Any] | None = None) -> Ledger:
        return Ledger.create(folder, config_digest=CONFIG, config=config or {"run": {"steps": 2}}, seed=7, game="echo")

    return make_ledger


@pytest.fixture
def ledger(folder: Path, create: Create) -> Iterator[Ledger]:
    with create(folder) as made:
        yield made


@pytest.fixture
def child_env() -> dict[str, str]:
    """The environment of a child process that imports this very package."""
    return {**os.environ, "PYTHONPATH": str(Path(selfplay.__file__).parents[1])}
