"""Which names of a configuration stand for a game, what it is played on, and what picks the next of it.

A game that cannot honour a setting refuses here, before anything is spent. docker is imported when a game needs it.

Not here: who plays (`players`), what learns (`parts`), which games a mix has (`mix`).
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay import curriculum, games
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.curriculum import CURRICULA, Curriculum
from selfplay.curriculum.options import filled
from selfplay.errors import NotFound, UserError
from selfplay.events import Event, Observer
from selfplay.games import Game, abilities_of
from selfplay.games.rewards import ProposerReward, proposer_reward, refuse_unbalanced, solver_reward
from selfplay.mix import alone, shares_of
from selfplay.players import Players
from selfplay.project import Project

if TYPE_CHECKING:
    from selfplay.cluster import Wanted
    from selfplay.games.code import Settings
    from selfplay.games.code.options import Options as CodeOptions
    from selfplay.games.search.options import Options as SearchOptions
    from selfplay.sandbox import SandboxProvider
    from selfplay.sandbox.wheels import Wheel

REHEARSED = 400
"""Warm-up examples whose bugs are tried out beforehand, so that their prompts show failing tests as play does."""


SEVERAL = " + "
"""Stands between several repositories in `game.source`: spaces, because a version may hold a plus."""
NO_SANDBOX = "none"
"""Of games that run nothing."""


def waiting(stage: str, words: str) -> Event:
    """A stage without a count, for the screen."""
    return Event(kind="stage", stage=stage, data={"waits_for": words, "total": None})


async def game(
    config: Config, project: Project, players: Players, *, observe: Observer, stack: AsyncExitStack
) -> tuple[Game, str]:
    """The game, or the mix of games, and its sandbox in words; what they hold is closed with `stack`.

    Raises:
        NotFound: there is no such game.
        NotReady: no sandbox works here.
    """
    singles = alone(config)
    _refuse_options(config, [single.run.game for single in singles])
    made = [
        await _one(single, project, pair, config_digest=config.digest, observe=observe, stack=stack)
        for single, pair in zip(singles, players.pairs, strict=True)
    ]
    if len(made) == 1:
        return made[0]
    from selfplay.games.mixed import MixedGame

    sandbox = next((words for _, words in made if words != NO_SANDBOX), NO_SANDBOX)
    return MixedGame([one for one, _ in made], shares=shares_of(config)), sandbox


def _refuse_options(config: Config, games: Sequence[str]) -> None:
    """`game.options` are of the games `code` and `search`; in a mix of both each takes its own."""
    if config.game.options and not {"code", "search"} & set(games):
        hint = "they are of `search` and `code`"
        raise UserError(f"the game `{config.run.game}` has no options (game.options)", hint=hint)
    if "code" in games and "search" not in games:
        code_options(config, alone=True)
    if "search" in games and "code" not in games:
        search_options(config, alone=True)


async def _one(
    config: Config, project: Project, players: Players, *, config_digest: str, observe: Observer, stack: AsyncExitStack
) -> tuple[Game, str]:
    """One game, of a configuration that names no other; `config_digest` is the run's."""
    reward = worth(config)
    if config.run.game == "echo":
        from selfplay.games.echo import EchoGame

        toy = EchoGame(
            proposer=players.proposer, solver=players.solver, proposer_reward=reward, config_digest=config_digest
        )
        return toy, NO_SANDBOX
    if config.run.game == "search":
        return _search(config, players, config_digest=config_digest, observe=observe, stack=stack), NO_SANDBOX
    if ":" in config.run.game:
        make = named(config.run.game, games)
        own: Game = make(
            proposer=players.proposer, solver=players.solver, proposer_reward=reward, config_digest=config_digest
        )
        return own, NO_SANDBOX
    if config.run.game != "code":
        raise NotFound(
            f"no game `{config.run.game}`",
            hint="the games: code, search, echo, or module:class; several: -s run.game=code+search",
        )
    return await _code(config, project, players, config_digest=config_digest, observe=observe, stack=stack)


async def _code(
    config: Config, project: Project, players: Players, *, config_digest: str, observe: Observer, stack: AsyncExitStack
) -> tuple[Game, str]:
    """The game on a repository, or on several."""
    from selfplay.games.code import CodeGame, Repositories, TreeGame
    from selfplay.games.code.opening import Opening, Room
    from selfplay.sandbox.recipe import load_recipe

    refuse_pastless(config, project, players)
    sources, recipes = sources_of(config, project), sandboxes(project)
    recipe, settings, several = load_recipe(folder=recipes), _settings(config), len(sources) > 1
    if several and (wanted := wanted_of(config)) is not None and wanted.nodes.sandboxes:
        raise UserError(
            "sandboxes on a cluster are of one repository, and game.source names several",
            hint="play them on this machine: -s 'run.cluster={}'; or one of them: -s game.source=...",
        )
    kind, room, made, words = TreeGame if players.tools else CodeGame, Room(settings.workers), [], ""
    for source in sources:
        observe(waiting("sandbox", f"the sandbox ({config.sandbox.kind}) and what {source} requires"))
        wheels = await asyncio.to_thread(_wheels, source, config, tools=recipe.tools)
        provider, words = await _provider(config, recipes, wheels, observe=observe, stack=stack)
        await provider.reap()
        opening = Opening(
            source,
            cache=cache_folder(),
            provider=provider,
            wheels=wheels,
            settings=_one_of(settings, len(sources)),
            spec=recipe.spec(),
            room=room,
        )
        made.append(
            kind(
                opening=opening,
                proposer=players.proposer,
                solver=players.solver,
                config_digest=config_digest,
                proposer_reward=worth(config),
                solver_reward=solver_reward(config.rewards.solver),
            )
        )
        stack.push_async_callback(made[-1].aclose)
    return Repositories(made, rehearsed=settings.rehearsed) if several else made[0], words


def _one_of(settings: Settings, count: int) -> Settings:
    """Of one of `count` repositories, which have the dev set together and are rehearsed by who knows all of them."""
    if count == 1:
        return settings
    return replace(settings, rehearsed=0, dev_seeds=-(-settings.dev_seeds // count))


def _settings(config: Config) -> Settings:
    """What the game `code` is told, of each repository."""
    from selfplay.games.code import Settings
    from selfplay.games.code.checks import Thresholds
    from selfplay.games.code.survey import Rules

    return Settings(
        rules=Rules(max_lines=config.game.max_lines),
        thresholds=Thresholds(
            min_passing_tests=config.game.min_passing_tests,
            min_changed_files=config.game.min_changed_files,
            min_failing_tests=config.game.min_failing_tests,
            max_broken_share=config.game.max_broken_share,
        ),
        held_out=config.game.held_out,
        hidden_share=config.game.hidden_share,
        workers=config.sandbox.workers or os.cpu_count() or 1,
        seconds=config.sandbox.timeout_seconds,
        rehearsed=min(config.warmup.steps * config.warmup.examples, REHEARSED),
        seed=config.run.seed,
        options=code_options(config),
    )


async def _provider(
    config: Config, recipes: Path | None, wheels: Sequence[Wheel], *, observe: Observer, stack: AsyncExitStack
) -> tuple[SandboxProvider, str]:
    """Who makes sandboxes, on this machine or on a cluster, and what that is in words."""
    from selfplay.sandbox.recipe import load_recipe
    from selfplay.sandbox.select import choose

    wanted = wanted_of(config)
    if wanted is None or not wanted.nodes.sandboxes:
        chosen = choose(config.sandbox.kind, folder=recipes, wheels=wheels)
        stack.push_async_callback(chosen.provider.aclose)
        provider, words, notice = chosen.provider, chosen.provider.name, chosen.notice
    else:
        from selfplay.cluster.sandboxes import ClusterProvider

        own = load_recipe(folder=recipes) if recipes is not None else None
        remote = await ClusterProvider.open(
            config.sandbox.kind, wanted, recipe=own, wheels=wheels, say=lambda text: observe(lost(text))
        )
        stack.push_async_callback(remote.aclose)
        provider, words, notice = remote, remote.words, remote.notice
    if notice:
        observe(Event(kind="note", data={"text": notice}))
    return provider, words


def lost(text: str) -> Event:
    """Something on the cluster is lost, or is there again."""
    fix = "nothing recorded is lost; see what the cluster has: ray status"
    return Event(kind="alarm", data={"level": "warning", "text": text, "fix": fix})


def threads_of(config: Config) -> int:
    """Torch's threads, of each of the learner's ranks."""
    return config.policy.threads or max(1, (os.cpu_count() or 1) // config.learner.ranks)


def wanted_of(config: Config) -> Wanted | None:
    """What the run wants of a Ray cluster; None where all of it is on this machine.

    Raises:
        UserError: `run.cluster` has an unknown constant, or one that is out of bounds.
    """
    if not config.run.cluster:
        return None
    from selfplay.cluster import Nodes, Wanted

    nodes = filled(Nodes(), config.run.cluster, name="ray", key="run.cluster")
    return Wanted(nodes=nodes, ranks=config.learner.ranks, threads=threads_of(config))


def _search(config: Config, players: Players, *, config_digest: str, observe: Observer, stack: AsyncExitStack) -> Game:
    from selfplay.games.search.game import SearchGame
    from selfplay.games.search.opening import Opening

    options = search_options(config)
    opening = Opening(
        config.game.corpus,
        count=config.game.answers,
        retriever=options.retriever,
        seconds=options.timeout,
        say=lambda words: observe(waiting("corpus", words)),
    )
    stack.push_async_callback(opening.aclose)
    return SearchGame(
        opening=opening,
        proposer=players.proposer,
        solver=players.solver,
        config_digest=config_digest,
        options=options,
        held_out=config.game.held_out,
        proposer_reward=worth(config),
        solver_reward=solver_reward(config.rewards.solver),
    )


def search_options(config: Config, *, alone: bool = False) -> SearchOptions:
    """`game.options` of the game `search`; those of `code` are passed over where it is not `alone`.

    Raises:
        UserError: an option is unknown, of the wrong kind, or outside its bounds.
    """
    from selfplay.games.code.options import Options as CodeOptions
    from selfplay.games.search.options import Options

    given = config.game.options if alone else _without(config.game.options, CodeOptions())
    found: SearchOptions = filled(Options(), given, name="search", key="game.options")
    return found


def code_options(config: Config, *, alone: bool = False) -> CodeOptions:
    """`game.options` of the game `code`; those of `search` are passed over where it is not `alone`.

    Raises:
        UserError: as `search_options`.
    """
    from selfplay.games.code.options import Options
    from selfplay.games.search.options import Options as SearchOptions

    given = config.game.options if alone else _without(config.game.options, SearchOptions())
    found: CodeOptions = filled(Options(), given, name="code", key="game.options")
    return found


def _without(given: Mapping[str, Any], others: Any) -> dict[str, Any]:
    theirs = {field.name for field in fields(others)}
    return {name: value for name, value in given.items() if name not in theirs}


def worth(config: Config) -> ProposerReward:
    """What a proposal is worth.

    Raises:
        UserError: there is no such reward or constant, or it needs a baseline that the estimator has not.
    """
    name, rewards = config.rewards.proposer, config.rewards
    reward = proposer_reward(name, alpha=rewards.alpha, min_viable=config.play.min_viable, options=rewards.options)
    refuse_unbalanced(reward, name=name, estimator=config.learner.estimator.partition(",")[0].strip())
    return reward


def chooser(config: Config, players: Players | None = None) -> Curriculum:
    """What picks the next, with its options; `players` say which form of the game is played, where it has two.

    Raises:
        NotFound: there is no such function.
        UserError: it has no such option, cannot do with its value, or asks for what the game does not have.
    """
    name, game = config.curriculum.choose, config.run.game
    found: Curriculum = curriculum.configured(named(name, curriculum), config.curriculum.options, name=name)
    can = abilities_of(game, tools=players is None or players.tools)
    curriculum.refuse_missing(curriculum.needs_of(found), can, name=name, game=game, known=CURRICULA)
    return found


def refuse_pastless(config: Config, project: Project, players: Players) -> None:
    """A curriculum that asks for bugs by a repository's history needs a source that has one.

    Raises:
        UserError: the source holds none; the sentence says why.
    """
    from selfplay.games.code import history

    if history.STRATEGY not in curriculum.needs_of(chooser(config, players)).strategies:
        return
    if why := next(filter(None, map(history.why_none, sources_of(config, project))), ""):
        raise UserError(f"strategy `{history.STRATEGY}` needs a git history: {why}", hint=history.HINT)


def _wheels(source: str, config: Config, *, tools: Sequence[str]) -> Sequence[Wheel]:
    """What the repository requires, pinned."""
    from selfplay.games.code.needs import wheels_of
    from selfplay.games.code.source import fetch
    from selfplay.sandbox.environment import tool_versions

    repository = fetch(source, cache=cache_folder())
    return wheels_of(repository, more=config.game.requirements, tools=tool_versions(tools))


def sandboxes(project: Project) -> Path | None:
    """The project's own recipes; None where the shipped ones serve."""
    own = project.folder / "sandboxes" if project.folder is not None else None
    return own if own is not None and (own / "python").is_dir() else None


def sources_of(config: Config, project: Project) -> tuple[str, ...]:
    """The repositories as configured; a relative folder is relative to the project.

    Raises:
        UserError: one is named twice, or none stands beside a plus.
    """
    parts = in_words(config)
    found = tuple(_placed(part, project) for part in parts)
    if len(set(found)) < len(found) or not all(parts):
        raise UserError(
            f"game.source names a repository twice, or none beside a plus: `{config.game.source}`",
            hint="several: -s 'game.source=pypi:toolz==1.2.0 + ./my-package'",
        )
    return found


def in_words(config: Config) -> tuple[str, ...]:
    """The repositories' names, as they were typed."""
    source = config.game.source
    # note: a folder's name may hold what stands between several.
    return (source,) if Path(source).is_dir() else tuple(part.strip() for part in source.split(SEVERAL))


def _placed(source: str, project: Project) -> str:
    if source.startswith(("./", "../")) and project.folder is not None:
        return str((project.folder / source).resolve())
    return source


def named(name: str, module: Any) -> Any:
    """`name` in `module`, or what the dotted path `module:function` names.

    Raises:
        NotFound: there is no such thing.
    """
    path, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(path), attribute) if attribute else getattr(module, path)
    except (ImportError, AttributeError) as error:
        raise NotFound(f"`{name}` is not in {module.__name__} and is no `module:function`: {error}") from error
