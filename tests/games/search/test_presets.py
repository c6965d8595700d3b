"""The presets of the search game: each loads, is planned, and says what it does not do as published."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from selfplay import parts
from selfplay.batches import _worth
from selfplay.config import load
from selfplay.errors import NotFound, UserError
from selfplay.events import ignore
from selfplay.games import AsksPolicy, abilities_of
from selfplay.games.search.game import SearchGame
from selfplay.plan import plan, published
from selfplay.project import Project
from selfplay.types import Group
from tests.games.search.ground import corpus


@pytest.mark.parametrize("name", ["search-quickstart", "ssp-paper", "ssp-code"])
def test_a_preset_loads_and_is_planned(name: str, project: Project) -> None:
    config = load(name, project=project, environ={})
    rows = {(row.section, row.name): row for row in plan(config, project)}
    assert rows["play", "game"].value == "search"
    assert rows["play", "corpus"].value == "python-docs"
    assert rows["rewards", "solver"].value.endswith("if it passes, else " + ("-1" if "quick" in name else "+0"))


def test_the_papers_constants_are_set(project: Project) -> None:
    paper, code = (load(name, project=project, environ={}) for name in ("ssp-paper", "ssp-code"))
    for config in (paper, code):
        options = parts.search_options(config)
        assert (options.noise, options.hops, options.top_k) == (4, 3, 3)
        assert options.answerable
        assert not any((options.closed_book, options.ablation, options.unique, options.quote))
        assert (config.play.proposals, config.play.attempts, config.curriculum.seeds) == (1, 5, 256)
        assert (config.learner.kl, config.learner.clip_low, config.learner.clip_high) == (0.01, 0.2, 0.285)
        assert parts.worth(config)(True, 1, 5) == pytest.approx(0.8)
        assert parts.worth(config)(False, 0, 0) == 0.0
        players = parts.roles(config, project)
        assert (players.proposer.limits.turns, players.solver.limits.turns) == (10, 10)
    ours = parts.search_options(paper), parts.search_options(code)
    assert [one.noise_kind for one in ours] == ["passages", "trajectories"]
    assert [one.filters.searches for one in ours] == [1, 2]
    assert [one.filters.words for one in ours] == [0, 10]
    assert not any(one.filters.seen for one in ours)
    assert [one.learner.order for one in (paper, code)] == ["solver_first", "proposer_first"]
    names = [parts.order_of(one, parts.roles(one, project)) for one in (paper, code)]
    assert names == [(("search_solver",), ("search_proposer",)), (("search_proposer",), ("search_solver",))]
    assert [one.filters.repeats for one in ours] == [True, False]
    assert (paper.learner.estimator, code.learner.estimator) == ("raw,dr_grpo", "raw,grpo")


@pytest.mark.parametrize(
    ("preset", "sets", "message"),
    [
        ("search-quickstart", ("game.options={noises=1}",), "`search` has no option `noises`"),
        ("search-quickstart", ("game.options={noise='all'}",), "expected a whole number"),
        ("search-quickstart", ("game.options={noise_kind='words'}",), "expected trajectories or passages"),
        ("search-quickstart", ("roles.solver=search_solver",), "one searches for itself"),
        ("ssp-paper", ("warmup.steps=10",), "no warm-up examples for roles with tools"),
        ("search-quickstart", ("curriculum.choose=ssr",), "which game `search` does not have"),
    ],
)
def test_what_cannot_be_played_is_refused_by_the_plan(
    preset: str, sets: tuple[str, ...], message: str, project: Project
) -> None:
    with pytest.raises(UserError, match=message):
        plan(load(preset, project=project, sets=sets, environ={}), project)


def test_a_hint_is_among_what_it_can_be_asked_and_children_are_not() -> None:
    can = abilities_of("search", tools=True)
    assert can.terms == ("hint",)
    assert "mutate" not in can.modes


def test_the_game_is_made_as_configured(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    corpus(tmp_path / "texts")
    sets = ("game.corpus=small", "game.answers=10", "game.options={top_k=1, hops=2}")
    config = load("search-quickstart", project=project, sets=sets, environ={})

    async def main() -> None:
        async with AsyncExitStack() as stack:
            players = parts.roles(config, project)
            made, sandbox = await parts.game(config, project, players, observe=ignore, stack=stack)
            assert isinstance(made, SearchGame)
            assert isinstance(made, AsksPolicy)
            assert sandbox == "none"
            seeds = await made.seeds()
            assert len(seeds) == 10
            assert all(len(seed.payload["passages"]) == 1 for seed in seeds)
            assert {seed.payload["hop"] for seed in seeds} <= {1, 2}

    asyncio.run(main())


def test_options_are_of_this_game_only(project: Project) -> None:
    config = load("demo", project=project, sets=("game.options={noise=1}",), environ={})

    async def main() -> None:
        async with AsyncExitStack() as stack:
            await parts.game(config, project, parts.roles(config, project), observe=ignore, stack=stack)

    with pytest.raises(UserError, match="has no options"):
        asyncio.run(main())


def test_each_role_has_the_estimator_of_its_own(project: Project) -> None:
    found = parts.estimator(load("ssp-paper", project=project, environ={}))
    assert list(found.by_role) == ["search_proposer"]

    def advantages(role: str) -> tuple[float, ...]:
        group = Group(
            id="g",
            step=0,
            role=role,
            subject_id="s",
            trajectory_ids=("a", "b"),
            rewards=(1.0, 0.0),
            advantages=(),
            informative=True,
        )
        return _worth(role, [group], found, lambda role, number: ())["g"]

    assert advantages("search_proposer") == (1.0, 0.0)
    assert advantages("search_solver") == (0.5, -0.5)
    sets = ("learner.estimator=raw,grpo", "rewards.proposer=ssr")
    with pytest.raises(UserError, match="subtracts no baseline"):
        plan(load("ssp-code", project=project, sets=sets, environ={}), project)
    with pytest.raises(NotFound, match="no estimator `none`"):
        parts.estimator(load("ssp-code", project=project, sets=("learner.estimator=raw,none",), environ={}))


@pytest.mark.parametrize(("name", "least"), [("ssp-paper", 6), ("ssp-code", 8)])
def test_a_preset_says_where_it_is_not_as_published(name: str, least: int, project: Project) -> None:
    found = published(load(name, project=project, environ={}), project)
    assert len(found) >= least
    assert all(one.what and one.paper and one.ours and one.reason for one in found)
    assert "ratios" in [one.what for one in found]
    (noise,) = [one for one in found if one.what == "noise"]
    assert noise.reason.endswith("drawn by a key")
    assert not published(load("demo", project=project, environ={}), project)
