"""Every shipped curriculum preset loads, and its function takes its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay import parts
from selfplay.config import load
from selfplay.errors import NotFound, UserError
from selfplay.plan import plan
from selfplay.project import Project

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "curricula").glob("demo-*.toml"))


def test_there_is_one_for_each() -> None:
    named = ("bandit", "frontier", "ladder", "plr", "ssp", "ssr", "uniform")
    assert [f"demo-{name}" for name in named] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_loads_and_is_planned(name: str, project: Project) -> None:
    config = load(name, project=project, environ={})
    assert callable(parts.chooser(config))
    rows = {(row.section, row.name): row for row in plan(config, project)}
    assert config.curriculum.choose in rows["play", "steps"].value
    assert all(option in rows["play", "steps"].note for option in config.curriculum.options)
    text = (project.shipped / "curricula" / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# The toy game")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("curriculum.choose=frontier", "curriculum.options={replays=0.3}"), "has no option `replays`"),
        (("curriculum.options={replay=0.3}",), "`uniform` has no option `replay`"),
        (
            ("curriculum.choose=ssr",),
            "`ssr` with these options asks for strategy `removal`, strategy `history`, which game `echo` does not",
        ),
        (("curriculum.choose=ladder",), "asks for strategy `direct`, which game `echo` does not have"),
        (("curriculum.choose=ladder", 'curriculum.options={turns=4, strategies="x"}'), "strategy `x`, `turns`, which"),
        (("rewards.options={gamma=1}",), "reward `ssr` has no constant `gamma`"),
        (("learner.estimator=raw",), "subtracts no baseline"),
        (("learner.estimator=selfplay.learner.grpo:raw", "rewards.proposer=azr"), "subtracts no baseline"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_the_plan(sets: tuple[str, ...], message: str, project: Project) -> None:
    with pytest.raises(UserError, match=message):
        plan(load("demo", project=project, sets=sets, environ={}), project)


def test_who_is_refused_is_told_what_can_be_played(project: Project) -> None:
    with pytest.raises(UserError) as caught:
        plan(load("demo", project=project, sets=("curriculum.choose=ssr",), environ={}), project)
    less = "-s 'curriculum.options={strategies=\"\"}' asks for less"
    able = "by default it can be played with: uniform, frontier, ssp, bandit, given; presets: selfplay ls"
    assert caught.value.hint == f"{less}; {able}"
    plain = ("curriculum.choose=ssr", 'curriculum.options={strategies=""}')
    assert plan(load("demo", project=project, sets=plain, environ={}), project)


def test_options_reach_the_digest_and_the_written_file(project: Project) -> None:
    sets = ("curriculum.choose=frontier", "curriculum.options={replay=0.3, anneal=true}")
    config = load("demo", project=project, sets=sets, environ={})
    assert config.digest != load("demo", project=project, sets=sets[:1], environ={}).digest
    assert "options = {replay = 0.3, anneal = true}  # -s" in config.to_toml()
    chosen = parts.chooser(config)
    assert chosen.keywords["options"].replay == 0.3  # type: ignore[attr-defined]


def test_other_rewards_say_what_they_ask_for(project: Project) -> None:
    config = load("demo", project=project, sets=("rewards.proposer=learnability",), environ={})
    rows = {(row.section, row.name): row.value for row in plan(config, project)}
    assert rows["rewards", "asks for"] == "a solve rate of 0.500 for G = 8"
    with pytest.raises(NotFound):
        parts.chooser(load("demo", project=project, sets=("curriculum.choose=nothing",), environ={}))
