"""The plan says what the run would use, and refuses what the run would refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.plan import optimum, plan
from selfplay.project import Project


def test_the_quickstart_prints_its_formulas_with_their_constants(project: Project) -> None:
    rows = {(r.section, r.name): r.value for r in plan(load("quickstart", project=project, sets=[]), project)}
    assert rows["rewards", "proposer"] == "-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s"
    assert rows["rewards", "solver"] == "+1 if all tests pass, else -1"
    assert rows["rewards", "asks for"] == "p* = 1 - G^(-1/(G-1)) = 0.257 for G = 8"
    assert "clip(r, 0.8, 1.28)" in rows["learning", "loss"]
    assert rows["play", "proposals"].startswith("P = 4")


def test_the_plan_follows_the_settings(project: Project, toy_config: Callable[..., Config]) -> None:
    rows = {(r.section, r.name): r.value for r in plan(toy_config("rewards.alpha=0.5", "learner.kl=0.1"), project)}
    assert rows["rewards", "proposer"].endswith("1 - 1.5 s")
    assert rows["learning", "KL"].startswith("0.1 k3")


@pytest.mark.parametrize("size", [2, 4, 5, 8, 16])
def test_the_optimum_is_where_the_expected_reward_is_highest(size: int) -> None:
    def expected(p: float) -> float:
        return 1 - 1.8 * (p + (1 - p) ** size)

    best = max((i / 10_000 for i in range(10_001)), key=expected)
    assert optimum(size) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("roles.proposer=injector", "injector"),
        ("roles.solver=echo_proposer", "not the solver"),
        ("rewards.proposer=nothing", "nothing"),
    ],
)
def test_what_cannot_be_played_is_refused_by_name(
    project: Project, toy_config: Callable[..., Config], setting: str, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        plan(toy_config(setting), project)


def test_a_threshold_that_no_single_edit_reaches_is_refused(project: Project) -> None:
    config = load("quickstart", project=project, sets=["game.min_changed_files=2"])
    with pytest.raises(UserError, match="role `injector` edits one file"):
        plan(config, project)
