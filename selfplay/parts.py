"""Which names of a configuration stand for which parts: game, learner, policy, estimator.

A part that cannot honour a setting refuses here, before anything is spent. torch, transformers and
docker are imported when a part that needs them is made.

Not here: the order in which parts are made and closed (`build`).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay import curriculum
from selfplay.alarms import Watch, known
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.curriculum import CURRICULA, Curriculum
from selfplay.curriculum.options import filled
from selfplay.errors import NotFound, UserError
from selfplay.events import Event, Observer
from selfplay.games import Game, abilities_of
from selfplay.games.rewards import ProposerReward, proposer_reward, refuse_unbalanced, solver_reward
from selfplay.learner import estimators, forecast, memory
from selfplay.learner.estimators import Estimator
from selfplay.players import Players as Players
from selfplay.players import roles as roles
from selfplay.project import Project
from selfplay.samplers import TOY as TOY
from selfplay.samplers import correction, spectator, toy
from selfplay.samplers import policy as policy
from selfplay.types import Role, digest

if TYPE_CHECKING:
    from selfplay.games.search.options import Options as SearchOptions
    from selfplay.learner.options import Options
    from selfplay.learner.spectator import Spectator
    from selfplay.learner.trainer import Trainer
    from selfplay.policy import Tokenizer
    from selfplay.sandbox.wheels import Wheel

REHEARSED = 400
"""Warm-up examples whose bugs are tried out beforehand, so that their prompts show failing tests as play does."""


def waiting(stage: str, words: str) -> Event:
    """A stage without a count, for the screen."""
    return Event(kind="stage", stage=stage, data={"waits_for": words, "total": None})


async def game(
    config: Config, project: Project, players: Players, *, observe: Observer, stack: AsyncExitStack
) -> tuple[Game, str]:
    """The game, and its sandbox in words; what they hold is closed with `stack`.

    Raises:
        NotFound: there is no such game.
        NotReady: no sandbox works here.
    """
    reward = worth(config)
    if config.game.options and config.run.game != "search":
        raise UserError(f"the game `{config.run.game}` has no options (game.options)", hint="they are of `search`")
    if config.run.game == "echo":
        from selfplay.games.echo import EchoGame

        toy = EchoGame(
            proposer=players.proposer, solver=players.solver, proposer_reward=reward, config_digest=config.digest
        )
        return toy, "none"
    if config.run.game == "search":
        return _search(config, players, observe=observe, stack=stack), "none"
    if config.run.game != "code":
        raise NotFound(f"no game `{config.run.game}`", hint="the games: code, search, echo")
    from selfplay.games.code import CodeGame, Settings, TreeGame
    from selfplay.games.code.checks import Thresholds
    from selfplay.games.code.opening import Opening
    from selfplay.games.code.survey import Rules
    from selfplay.sandbox.recipe import load_recipe
    from selfplay.sandbox.select import choose

    refuse_pastless(config, project, players)
    source, recipes = source_of(config, project), sandboxes(project)
    observe(waiting("sandbox", f"the sandbox ({config.sandbox.kind}) and what {source} requires"))
    wheels = await asyncio.to_thread(_wheels, source, config, tools=load_recipe(folder=recipes).tools)
    chosen = choose(config.sandbox.kind, folder=recipes, wheels=wheels)
    if chosen.notice:
        observe(Event(kind="note", data={"text": chosen.notice}))
    stack.push_async_callback(chosen.provider.aclose)
    await chosen.provider.reap()
    kind = TreeGame if players.tools else CodeGame
    settings = Settings(
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
    )
    code = kind(
        opening=Opening(source, cache=cache_folder(), provider=chosen.provider, wheels=wheels, settings=settings),
        proposer=players.proposer,
        solver=players.solver,
        config_digest=config.digest,
        proposer_reward=reward,
        solver_reward=solver_reward(config.rewards.solver),
    )
    stack.push_async_callback(code.aclose)
    return code, chosen.provider.name


def _search(config: Config, players: Players, *, observe: Observer, stack: AsyncExitStack) -> Game:
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
        config_digest=config.digest,
        options=options,
        held_out=config.game.held_out,
        proposer_reward=worth(config),
        solver_reward=solver_reward(config.rewards.solver),
    )


def search_options(config: Config) -> SearchOptions:
    """`game.options` of the game `search`.

    Raises:
        UserError: an option is unknown, of the wrong kind, or outside its bounds.
    """
    from selfplay.games.search.options import Options

    found: SearchOptions = filled(Options(), config.game.options, name="search", key="game.options")
    return found


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
    if why := history.why_none(source_of(config, project)):
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


def source_of(config: Config, project: Project) -> str:
    """The source as configured; a relative folder is relative to the project."""
    source = config.game.source
    if source.startswith(("./", "../")) and project.folder is not None:
        return str((project.folder / source).resolve())
    return source


def threads_of(config: Config) -> int:
    """Torch's threads."""
    return config.policy.threads or os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The learner, its tokenizer, and where the weights come from."""

    trainer: Trainer | Spectator
    tokenizer: Tokenizer
    origin: str


def learner(config: Config, players: Players) -> Model:
    """Load the model (fetch it where needed) and make its trainer; called on the torch thread.

    Raises:
        NotFound, NotReady: there is no such model, or it cannot be fetched.
        UserError: learner and sampler cannot do with `learner.memory_mb`.
    """
    # note: read once, when torch loads its OpenMP. Threads that spin while they wait would take the cores
    # from the sandboxes: two of them beside a busy core ran six times slower than sleeping ones.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from selfplay.learner.trainer import Trainer

    options = _options(config, players)
    if config.policy.backend == "openai":
        watching, tokenizer = spectator(config)
        return Model(trainer=watching, tokenizer=tokenizer, origin="weights of the endpoint's own")
    if config.policy.model == TOY:
        model, characters = toy(config)
        return Model(
            trainer=Trainer(model, options=options, tokenizer=characters),
            tokenizer=characters,
            origin=f"random, seed {config.run.seed}",
        )
    from selfplay.policy.models import resolve
    from selfplay.policy.tokenizer import HFTokenizer

    found = resolve(config.policy.model, cache=cache_folder())
    shape = memory.shape_of(json.loads((found.folder / "config.json").read_text(encoding="utf-8")))
    if shape is not None and config.learner.memory_mb:
        forecast_of(config, players, shape).check()
    tokenizer = HFTokenizer(found.folder)
    return Model(
        trainer=Trainer.from_folder(found.folder, options=options, tokenizer=tokenizer),
        tokenizer=tokenizer,
        origin=f"{found.origin} ({found.digest[:12]})",
    )


def _options(config: Config, players: Players) -> Options:
    from selfplay.learner.options import Options

    weights = config.roles.weights
    return Options(
        lr=config.learner.lr,
        warmup_lr=config.warmup.lr,
        dtype=config.learner.dtype,
        weight_decay=config.learner.weight_decay,
        optimizer=config.learner.optimizer,
        lora_rank=config.learner.lora_rank,
        seed=config.run.seed,
        max_grad_norm=config.learner.max_grad_norm,
        role_weights="pooled"
        if weights == "pooled"
        else {players.proposer.name: weights[0], players.solver.name: weights[1]},
        loss=config.learner.loss,
        clip_low=config.learner.clip_low,
        clip_high=config.learner.clip_high,
        kl_coef=config.learner.kl,
        kl_estimator=config.learner.kl_estimator,
        correction=correction(config),
        ramp=config.learner.ramp,
        horizon=players.horizon,
        token_budget=config.learner.token_budget,
        memory_mb=memory.limit_mb(config.learner.memory_mb),
        sampler_rows=config.policy.max_rows,
        threads=threads_of(config),
    )


def forecast_of(config: Config, players: Players, shape: memory.Shape) -> forecast.Forecast:
    """What a run of a model of `shape` needs of memory."""
    setup = memory.Setup(
        dtype=config.learner.dtype,
        optimizer=config.learner.optimizer,
        lora_rank=config.learner.lora_rank,
        reference=config.learner.kl > 0.0,
        rows=config.policy.max_rows,
    )
    seeds, play, trained = config.curriculum.seeds, config.play, players.trained(config.roles.train)
    groups = [
        forecast.Groups(role=role.name, number=number, size=size, reply_tokens=_longest(role))
        for role, number, size in (
            (players.proposer, seeds, play.proposals),
            (players.solver, seeds * play.proposals, play.attempts),
        )
        if role.name in trained
    ]
    limit = memory.limit_mb(config.learner.memory_mb)
    return forecast.forecast(shape, setup, groups, token_budget=config.learner.token_budget, limit_mb=limit)


def _longest(role: Role) -> int:
    """Tokens of a play beside its prompt; with tools the prompt is counted too."""
    return role.sampling.max_tokens if role.tools is None else role.limits.context


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


def watch(config: Config) -> Watch:
    """What is watched, and which alarms end the run.

    Raises:
        NotFound: `alarms.stop` names one that does not exist.
    """
    alarms = config.alarms
    return Watch(stop=known(alarms.stop), agreement=alarms.agreement, entropy_floor=alarms.entropy_floor)


def estimator(config: Config) -> Estimator:
    """The estimator of advantages; two with a comma between them are the proposer's and the solver's.

    Raises:
        NotFound: there is no such thing.
    """
    first, _, second = map(str.strip, config.learner.estimator.partition(","))
    one = _estimator(first)
    return replace(_estimator(second), by_role={config.roles.proposer: one}) if second else one


def _estimator(name: str) -> Estimator:
    """A name, or `module:` and either a function of one group's rewards or an `Estimator`."""
    if name in estimators.ESTIMATORS:
        return estimators.ESTIMATORS[name]
    if ":" not in name:
        raise NotFound(f"no estimator `{name}`", hint=f"one of {', '.join(estimators.ESTIMATORS)}, or module:function")
    found = named(name, estimators)
    return found if isinstance(found, estimators.Estimator) else estimators.by_group(found)


def warm_cache(config: Config, model: Model) -> Path | None:
    """Where warmed weights of these settings lie; None where there is no warm-up or no cache is wanted.

    The key holds every setting that affects results, the origin of the weights and the fingerprint, which names the
    optimizer and the adapters' rank: fewer hits than possible, none of them wrong.
    """
    if not config.warmup.steps or not config.warmup.cache:
        return None
    values = {
        name: value
        for name, value in config.values().items()
        if (name.split(".")[0] in ("game", "warmup", "policy", "roles") and name != "policy.options")
        or name in ("run.seed", "play.temperature")
    }
    settings = (config.learner.dtype, config.learner.token_budget, config.learner.max_grad_norm)
    key = digest("warm", values, settings, model.origin, model.trainer.fingerprint)
    return cache_folder() / "warm" / key
