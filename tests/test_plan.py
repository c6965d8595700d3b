"""The plan says what the run would use, and refuses what the run would refuse."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.config import Config, load
from selfplay.errors import NotFound, UserError
from selfplay.learner import grpo
from selfplay.learner.optimizer import EPS
from selfplay.learner.options import WARMUP_FLOOR, WARMUP_RAMP, Options
from selfplay.plan import optimum, plan
from selfplay.project import Project
from selfplay.views.plan import PlanRow
from tests.learner.test_memory import SMOLLM2


def test_the_quickstart_prints_its_formulas_with_their_constants(project: Project) -> None:
    rows = {(r.section, r.name): r.value for r in plan(load("quickstart", project=project, sets=[]), project)}
    assert rows["rewards", "proposer"] == "-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s"
    assert rows["rewards", "solver"] == "+1 if it passes, else -1"
    assert rows["rewards", "asks for"] == "p* = 1 - G^(-1/(G-1)) = 0.169 for G = 16"
    assert "clip(r, 0.8, 1.28)" in rows["learning", "loss"]
    assert rows["play", "proposals"].startswith("P = 4")


def test_the_plan_follows_the_settings(project: Project, toy_config: Callable[..., Config]) -> None:
    rows = {(r.section, r.name): r.value for r in plan(toy_config("rewards.alpha=0.5", "learner.kl=0.1"), project)}
    assert rows["rewards", "proposer"].endswith("1 - 1.5 s")
    assert rows["learning", "KL"].startswith("0.1 k3")
    notes = {r.name: r.note for r in plan(toy_config("learner.estimator=spiral"), project)}
    assert "moving average" in notes["advantage"]
    with pytest.raises(NotFound, match="no estimator `gae`"):
        list(plan(toy_config("learner.estimator=gae"), project))


LOSSES = {
    "token_mean": ("max(-A r, -A clip(r, 0.8, 1.28))", "r = pi / pi_old", "token mean"),
    "sequence_mean": ("max(-A r, -A clip(r, 0.8, 1.28))", "r = pi / pi_old", "mean of its sequences' token means"),
    "dr_grpo": ("max(-A r, -A clip(r, 0.8, 1.28))", "r = pi / pi_old", "sum over its tokens / (4 x its sequences)"),
    "dual_clip": ("max(-A r, -A clip(r, 0.8, 1.28)), at most -3 A where A < 0", "r = pi / pi_old", "token mean"),
    "gspo": ("max(-A r, -A clip(r, 0.8, 1.28))", "mean of log(pi / pi_old)", "mean of its sequences' token means"),
    "cispo": ("-min(r, 5) A log pi", "r = pi / pi_old, without gradient", "token mean"),
    "selfplay.learner.grpo:clipped": ("its own, with clip_low = 0.2 and clip_high = 0.28", "", "token mean"),
}


@pytest.mark.parametrize("loss", [*grpo.LOSSES, "selfplay.learner.grpo:clipped"])
def test_each_loss_prints_its_own_formula(loss: str, project: Project, toy_config: Callable[..., Config]) -> None:
    formula, ratio, mean = LOSSES[loss]
    sets = [f"learner.loss={loss}", *(["learner.clip_high=5.0"] if loss == "cispo" else [])]
    rows = {row.name: row for row in plan(toy_config(*sets), project) if row.section == "learning"}
    assert rows["loss"].value == f"{formula}, {loss}"
    assert ratio in rows["loss"].note
    assert rows["roles"].note == f"each role's own {mean}"
    pooled = {row.name: row for row in plan(toy_config(*sets, "roles.weights=pooled"), project)}["roles"]
    assert (pooled.value, pooled.note) == ("one mean over all roles", f"all are taken for one role: {mean}")


def test_the_constants_of_the_formulas_are_those_of_the_code(
    project: Project, toy_config: Callable[..., Config]
) -> None:
    own = inspect.signature(grpo.gspo).parameters
    said = f"{1 - own['clip_low'].default:g}, {1 + own['clip_high'].default:g}"
    notes = {row.name: row.note for row in plan(toy_config("learner.loss=gspo"), project)}
    assert notes["loss"].endswith(f"GSPO's own clip is {said}")
    assert inspect.signature(grpo.dual_clipped).parameters["cap"].default == 3.0
    first, second = Options(lr=1.0, warmup_lr=1.0).betas
    assert notes["optimizer"] == f"betas {first:g} and {second:g}, epsilon {EPS:g}, weight decay 0"
    warming = {row.name: row for row in plan(toy_config("warmup.steps=9"), project)}["supervised"].value
    assert warming.endswith(f"a linear rise over {WARMUP_RAMP:.0%} of them, a cosine to {WARMUP_FLOOR:.0%} of it")


def test_rate_and_decay_are_said(project: Project, toy_config: Callable[..., Config]) -> None:
    def optimizer(*sets: str) -> PlanRow:
        return {row.name: row for row in plan(toy_config(*sets), project)}["optimizer"]

    assert optimizer().value == "AdamW, learning rate 0.001, gradient norm at most 1"
    assert optimizer("learner.ramp=1") == optimizer(), "its first update has the whole rate"
    risen = optimizer("learner.ramp=20", "learner.weight_decay=0.01")
    assert risen.value.startswith("AdamW, learning rate 0.001 after a linear rise over 20 updates, gradient")
    assert risen.note.endswith("weight decay 0.01")


@pytest.mark.parametrize(("every", "words"), [(0, "once, after the last update"), (5, "every 5 updates")])
def test_when_a_warm_up_is_looked_at(
    every: int, words: str, project: Project, toy_config: Callable[..., Config]
) -> None:
    rows = plan(toy_config("warmup.steps=9", f"warmup.check_every={every}"), project)
    assert {row.name: row.value for row in rows}["ends"].endswith(f"solved, looked at {words}")


@pytest.mark.parametrize(("sets", "words"), [("learner.loss=cispo", "absolute cap"), ("learner.loss=ppo", "no loss")])
def test_a_loss_that_the_learner_would_refuse_is_refused(
    project: Project, toy_config: Callable[..., Config], sets: str, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        plan(toy_config(sets), project)


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


def test_alarms_that_end_the_run_are_named_and_an_unknown_one_is_refused(
    project: Project, toy_config: Callable[..., Config]
) -> None:
    rows = {(r.section, r.name): r.value for r in plan(toy_config('alarms.stop=["entropy", "agreement"]'), project)}
    assert rows["books", "alarms"] == "entropy, agreement end the run, the others warn"
    assert {r.name: r.value for r in plan(toy_config("alarms.stop=[]"), project)}["alarms"] == "all warn"
    with pytest.raises(UserError, match="no such alarm"):
        plan(toy_config('alarms.stop=["entropi"]'), project)


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A folder with a configuration and no weights."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    return tmp_path


def memory_of(config: Config, project: Project) -> dict[str, str]:
    return {row.name: row.value for row in plan(config, project) if row.section == "memory"}


def test_the_plan_predicts_memory_from_the_configuration_alone(project: Project, small_model: Path) -> None:
    sets = [f"policy.model={small_model}", "learner.memory_mb=16000"]
    rows = memory_of(load("quickstart", project=project, sets=sets), project)
    assert rows["moments"] == "1076 MB"
    sizes = {name: int(value.removesuffix(" MB")) for name, value in rows.items() if value.endswith(" MB")}
    assert sizes.pop("in all") == pytest.approx(sum(sizes.values()), abs=5)
    assert rows["layers computed again"] == "none"
    rows = memory_of(load("quickstart", project=project, sets=[*sets[:1], "learner.memory_mb=6000"]), project)
    assert "micro-batches" in rows["layers computed again"]


def test_a_sample_that_can_never_fit_is_refused(project: Project, small_model: Path) -> None:
    sets = [f"policy.model={small_model}", "learner.memory_mb=1000"]
    with pytest.raises(UserError, match="one sample of 8192 tokens") as caught:
        plan(load("quickstart", project=project, sets=sets), project)
    assert "learner.memory_mb" in str(caught.value.hint)


def test_a_model_that_is_not_here_yet_is_said_to_be(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_config: Callable[..., Config]
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path))
    config = load("quickstart", project=project, sets=["policy.model=nobody/nothing-of-this-name"])
    assert "not on this disk yet" in memory_of(config, project)["unknown"]
    (tmp_path / "config.json").write_text(json.dumps({"n_embd": 8}))
    config = load("quickstart", project=project, sets=[f"policy.model={tmp_path}"])
    assert "not counted" in memory_of(config, project)["unknown"]
    assert list(memory_of(toy_config(), project)) == ["in all"]
