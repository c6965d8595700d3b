"""Names of a configuration become parts, or one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from selfplay import curriculum, parts
from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.learner import placing
from selfplay.learner.trainer import Trainer
from selfplay.project import Project
from tests.card import CARD, Card


def test_both_roles_sample_at_one_temperature(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    assert parts.roles(toy_config("play.temperature=0.7"), project).temperature == 0.7
    for name, temperature in (("echo_proposer", 1.0), ("echo_solver", 0.5)):
        folder = tmp_path / "roles" / name
        folder.mkdir(parents=True)
        side = name.split("_")[1]
        text = f'game = "echo"\nside = "{side}"\n[sampling]\ntemperature = {temperature}\nmax_tokens = 4\n'
        (folder / "role.toml").write_text(text)
        (folder / "prompt.md").write_text(">")
    other = Project(folder=tmp_path, shipped=project.shipped, runs=tmp_path / "runs")
    with pytest.raises(UserError, match="temperature"):
        parts.roles(toy_config(), other)
    assert parts.roles(toy_config("play.temperature=1.0"), other).temperature == 1.0


def test_a_run_puts_learner_and_sampler_on_the_first_card(
    toy_config: Callable[..., Config], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config()
    assert parts.learner(config, parts.roles(config, project)).trainer.options.device == "cpu"
    monkeypatch.setattr(placing, "CARD", str(CARD))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with Card()() as card:
        model = parts.learner(config, parts.roles(config, project))
        trainer = model.trainer
        assert isinstance(trainer, Trainer)
        assert {value.device for value in trainer.model.parameters()} == {CARD}
        assert all(card.holds(value) for value in trainer.compute.values())


def test_only_the_asked_sides_learn(toy_config: Callable[..., Config], project: Project) -> None:
    players = parts.roles(toy_config(), project)
    assert players.trained(["solver"]) == ("echo_solver",)


def test_dotted_paths_name_functions() -> None:
    assert parts.named("uniform", curriculum) is curriculum.uniform
    assert parts.named("selfplay.curriculum:uniform", curriculum) is curriculum.uniform
    for wrong in ("nothing", "selfplay.curriculum:nothing", "no.such.module:f"):
        with pytest.raises(NotFound, match=r"nothing|no\.such"):
            parts.named(wrong, curriculum)


def test_a_relative_source_is_relative_to_the_project(toy_config: Callable[..., Config], project: Project) -> None:
    assert project.folder is not None
    found = parts.sources_of(toy_config("game.source=./tests"), project)
    assert found == (str(project.folder / "tests"),)
    assert parts.sources_of(toy_config("game.source=pypi:toolz==1.2.0"), project) == ("pypi:toolz==1.2.0",)


def test_several_sources_stand_beside_a_plus(
    toy_config: Callable[..., Config], project: Project, tmp_path: Path
) -> None:
    def found(text: str) -> tuple[str, ...]:
        return parts.sources_of(toy_config(f"game.source={text}"), project)

    assert found("pypi:torch==2.13.0+cpu + ./tests") == ("pypi:torch==2.13.0+cpu", str(project.folder / "tests"))
    (tmp_path / "a + b").mkdir()
    assert found(str(tmp_path / "a + b")) == (str(tmp_path / "a + b"),), "a folder that is there"
    for wrong in ("./tests + ./selfplay/../tests", "a +  + b", "a + b + a"):
        with pytest.raises(UserError, match="a repository twice, or none beside a plus"):
            found(wrong)


def test_a_dotted_estimator_is_used(toy_config: Callable[..., Config]) -> None:
    def advantages(name: str) -> Sequence[Sequence[float]]:
        return parts.estimator(toy_config(f"learner.estimator={name}")).of_role([[1.0, 2.0], [3.0]], [])

    assert advantages("raw") == ((1.0, 2.0), (3.0,))
    assert advantages("selfplay.learner.estimators:raw") == [(1.0, 2.0), (0.0,)], "a function of one group"
    assert advantages("dr_grpo") == [(-0.5, 0.5), (0.0,)]
    assert parts.estimator(toy_config("learner.estimator=spiral")).past == 1024
    for wrong in ("nothing", "has_variance", "no.such:f", "selfplay.learner.estimators:nothing"):
        with pytest.raises(NotFound, match=wrong):
            advantages(wrong)


def test_the_warm_cache_depends_on_what_the_weights_depend_on(
    toy_config: Callable[..., Config], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(*sets: str) -> Path | None:
        config = toy_config("warmup.steps=2", *sets)
        return parts.warm_cache(config, parts.learner(config, parts.roles(config, project)))

    same = key()
    assert same is not None
    assert key("learner.clip_high=0.3", "run.steps=99") == same
    assert key("warmup.lr=0.5") != same
    assert key("run.seed=1") != same
    assert key("learner.weight_decay=0.1") != same
    assert key("warmup.cache=false") is None
    monkeypatch.setattr("platform.python_version", lambda: "3.11.99")
    assert key() != same, "another standard library has other lessons"
