"""Which names of a configuration stand for which parts: learner, policy, estimator, and what `grounds` has.

A part that cannot honour a setting refuses here, before anything is spent. torch and transformers are imported when a
part that needs them is made.

Not here: the order in which parts are made and closed (`build`).
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from selfplay import elsewhere
from selfplay.alarms import Watch, known
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.games import Cast
from selfplay.games.gold import knows
from selfplay.grounds import chooser as chooser
from selfplay.grounds import game as game
from selfplay.grounds import lost as lost
from selfplay.grounds import named as named
from selfplay.grounds import refuse_pastless as refuse_pastless
from selfplay.grounds import sandboxes as sandboxes
from selfplay.grounds import search_options as search_options
from selfplay.grounds import sources_of as sources_of
from selfplay.grounds import threads_of as threads_of
from selfplay.grounds import waiting as waiting
from selfplay.grounds import wanted_of as wanted_of
from selfplay.grounds import worth as worth
from selfplay.learner import estimators, forecast, memory
from selfplay.learner.estimators import Estimator
from selfplay.mix import alone, shares_of
from selfplay.players import Players as Players
from selfplay.players import roles as roles
from selfplay.policy.cards import learners_mb
from selfplay.samplers import TOY as TOY
from selfplay.samplers import correction, engine_mb, spectator, toy
from selfplay.samplers import policy as policy
from selfplay.types import Role, digest

if TYPE_CHECKING:
    from selfplay.doors.tinker import TinkerLearner
    from selfplay.learner.options import Options
    from selfplay.learner.ranks import Build, Ranked
    from selfplay.learner.ranks_world import World
    from selfplay.learner.spectator import Spectator
    from selfplay.learner.trainer import Trainer
    from selfplay.policy import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The learner, its tokenizer, and where the weights come from."""

    trainer: Trainer | Ranked | Spectator | TinkerLearner
    tokenizer: Tokenizer
    origin: str

    def close(self) -> None:
        """End the learner's other ranks, where there are some; idempotent."""
        if (close := getattr(self.trainer, "close", None)) is not None:
            close()


def learner(config: Config, players: Players) -> Model:
    """Load the model (fetch it where needed) and make its trainer; called on the torch thread.

    With `learner.ranks` above 1 it starts their processes: whoever called closes the model.

    Raises:
        NotFound, NotReady: there is no such model, or it cannot be fetched.
        UserError: learner and sampler cannot do with `learner.memory_mb`, or ranks cannot do what is asked.
        RunFailed: a rank ended before it began.
    """
    # note: read once, when torch loads its OpenMP. Threads that spin while they wait would take the cores
    # from the sandboxes: two of them beside a busy core ran six times slower than sleeping ones.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from selfplay.learner.placing import device_for, room_mb
    from selfplay.learner.trainer import Trainer

    if config.policy.backend == "openai":
        watching, tokenizer = spectator(config)
        return Model(trainer=watching, tokenizer=tokenizer, origin="weights of the endpoint's own")
    if config.policy.backend == "tinker":
        from selfplay.doors import tinker

        options = _options(config, players, device="cpu", limit_mb=0.0)
        there, tokenizer = tinker.learner(config, options, temperature=players.temperature)
        return Model(trainer=there, tokenizer=tokenizer, origin=f"adapters at the Tinker server {there.service.url}")
    device = device_for(ranks=config.learner.ranks)
    if config.policy.model == TOY:
        options = _options(config, players, device=device, limit_mb=_limit_mb(config, None, room_mb(device)))
        model, characters = toy(config)
        alone = partial(Trainer, model, options=options, tokenizer=characters)
        return Model(
            trainer=_ranked(config, partial(toy_trainer, config, options=options)) or alone(),
            tokenizer=characters,
            origin=f"random, seed {config.run.seed}",
        )
    from selfplay.policy.models import resolve
    from selfplay.policy.tokenizer import HFTokenizer

    found = resolve(config.policy.model, cache=cache_folder())
    shape = memory.shape_of(json.loads((found.folder / "config.json").read_text(encoding="utf-8")))
    limit_mb = _limit_mb(config, shape, room_mb(device))
    if shape is not None and config.learner.memory_mb:
        forecast_of(config, players, shape).check()
    tokenizer = HFTokenizer(found.folder)
    options = _options(config, players, device=device, limit_mb=limit_mb)
    build = partial(Trainer.from_folder, found.folder, options=options, tokenizer=tokenizer)
    return Model(
        trainer=_ranked(config, build) or build(),
        tokenizer=tokenizer,
        origin=f"{found.origin} ({found.digest[:12]})",
    )


def _ranked(config: Config, build: Build) -> Ranked | None:
    """The learner of several ranks, on this machine or on a cluster; None where one process is asked for."""
    if config.learner.ranks == 1:
        return None
    from selfplay.learner.ranks import Ranked, Ranks

    if (wanted := wanted_of(config)) is None:
        return Ranked.start(build, ranks=Ranks.here(config.learner.ranks))
    from selfplay.cluster import ranks

    return Ranked.start(build, ranks=ranks.start(wanted))


def toy_trainer(config: Config, *, options: Options, world: World) -> Trainer:
    """The toy model's trainer on one of several ranks."""
    from selfplay.learner.trainer import Trainer

    model, characters = toy(config)
    return Trainer(model, options=options, tokenizer=characters, world=world)


def _limit_mb(config: Config, shape: memory.Shape | None, room: float | None) -> float:
    """What the learner, and a sampler in its process, may use, in MB: of a card that has `room`; None: of memory."""
    weights_mb = memory.SIZES[config.learner.dtype] * shape.parameters / memory.MB if shape else 0.0
    left = None if room is None else max(1.0, room - engine_mb(config, weights_mb=weights_mb))
    return memory.limit_mb(config.learner.memory_mb, card_mb=left)


def _options(config: Config, players: Players, *, device: str, limit_mb: float) -> Options:
    from selfplay.learner.options import Options

    return Options(
        lr=config.learner.lr,
        warmup_lr=config.warmup.lr,
        dtype=config.learner.dtype,
        weight_decay=config.learner.weight_decay,
        optimizer=config.learner.optimizer,
        lora_rank=config.learner.lora_rank,
        lora_roles=own_adapters(config, players),
        seed=config.run.seed,
        max_grad_norm=config.learner.max_grad_norm,
        role_weights=role_weights(config, players),
        loss=config.learner.loss,
        clip_low=config.learner.clip_low,
        clip_high=config.learner.clip_high,
        kl_coef=config.learner.kl,
        kl_estimator=config.learner.kl_estimator,
        correction=correction(config),
        order=order_of(config, players),
        ramp=config.learner.ramp,
        horizon=players.horizon,
        token_budget=config.learner.token_budget,
        memory_mb=limit_mb / config.learner.ranks,
        sampler_rows=sampler_rows(config),
        threads=threads_of(config),
        device=device,
        ranks=config.learner.ranks,
    )


def sampler_rows(config: Config) -> int:
    """Most replies that a sampler in the learner's process has in flight; 0 where there is none."""
    here = config.policy.backend == "local" and not elsewhere.engines(config)
    return config.policy.max_rows if here else 0


def own_adapters(config: Config, players: Players) -> tuple[str, ...]:
    """Roles that have an adapter each, solvers first: who else plays does so with the first one's."""
    if not config.learner.lora_per_role:
        return ()
    return (*players.trained(["solver"]), *players.trained(["proposer"]))


def credit_of(config: Config, players: Players) -> Cast | None:
    """Solvers whose replies are credited one by one; None where plays are credited as wholes.

    Raises:
        UserError: nobody can be, since no game with a solver of several turns knows its answers.
    """
    if config.learner.credit == "play":
        return None
    able = {name: role for name, role in players.cast("solver").roles.items() if knows(role)}
    if not able:
        raise UserError(
            "learner.credit is `gain`, and no solver plays several turns for an answer that is known "
            f"(`{players.solver.name}`)",
            hint="search with tools: selfplay run ssp-paper; or credit plays as wholes: -s learner.credit=play",
        )
    return Cast(roles=able)


def order_of(config: Config, players: Players) -> tuple[tuple[str, ...], ...]:
    """Roles that learn one after the other; none where all learn at once."""
    if config.learner.order == "joint":
        return ()
    sides = ("solver", "proposer") if config.learner.order == "solver_first" else ("proposer", "solver")
    return tuple(players.trained([side]) for side in sides)


def role_weights(config: Config, players: Players) -> Mapping[str, float] | Literal["pooled"]:
    """Role -> the weight of its own mean: `roles.weights`, times its game's share where games are mixed."""
    weights = config.roles.weights
    if weights == "pooled":
        return "pooled"
    return {
        role.name: share * weight
        for pair, share in zip(players.pairs, shares_of(config), strict=True)
        for role, weight in zip((pair.proposer, pair.solver), weights, strict=True)
    }


def forecast_of(config: Config, players: Players, shape: memory.Shape) -> forecast.Forecast:
    """What a run of a model of `shape` needs of memory."""
    adapters = max(1, len(own_adapters(config, players)))
    setup = memory.Setup(
        dtype=config.learner.dtype,
        optimizer=config.learner.optimizer,
        lora_rank=config.learner.lora_rank * adapters,
        reference=config.learner.kl > 0.0,
        rows=sampler_rows(config),
        samplers=adapters,
    )
    seeds, play, trained = config.curriculum.seeds, config.play, players.trained(config.roles.train)
    groups = [
        forecast.Groups(role=role.name, number=number, size=size, reply_tokens=_longest(role))
        for pair, share in zip(players.pairs, shares_of(config), strict=True)
        for role, number, size in (
            (pair.proposer, math.ceil(share * seeds), play.proposals),
            (pair.solver, math.ceil(share * seeds) * play.proposals, play.attempts),
        )
        if role.name in trained
    ]
    room = None if config.learner.memory_mb else learners_mb(ranks=config.learner.ranks)
    limit = _limit_mb(config, shape, room)
    return forecast.forecast(shape, setup, groups, token_budget=config.learner.token_budget, limit_mb=limit)


def _longest(role: Role) -> int:
    """Tokens of a play beside its prompt; with tools the prompt is counted too."""
    return role.sampling.max_tokens if role.tools is None else role.limits.context


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
    proposers = [single.roles.proposer for single in alone(config)]
    return replace(_estimator(second), by_role=dict.fromkeys(proposers, one)) if second else one


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

    The key holds every setting that affects results, the origin of the weights, Python's version and the fingerprint,
    which names the optimizer and the adapters' rank: fewer hits than possible, none of them wrong. What the source and
    the roles hold comes on top (`warmup`), once it is recorded.
    """
    if not config.warmup.steps or not config.warmup.cache:
        return None
    values = {
        name: value
        for name, value in config.values().items()
        if (name.split(".")[0] in ("game", "warmup", "policy", "roles") and name != "policy.options")
        or name in ("run.seed", "play.temperature")
        # note: of a mix alone, so that what other runs warmed is found again.
        or (name == "run.shares" and value)
    }
    settings: tuple[object, ...] = (
        config.learner.dtype,
        config.learner.token_budget,
        config.learner.max_grad_norm,
    )
    # note: of those that decay alone, so that what others warmed is found again.
    settings += (config.learner.weight_decay,) if config.learner.weight_decay else ()
    # note: lessons are taken from its standard library too, or from its documentation.
    python = platform.python_version()
    key = digest("warm", values, settings, model.origin, model.trainer.fingerprint, python)
    return cache_folder() / "warm" / key
