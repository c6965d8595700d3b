"""What a run would play and by which formulas, before anything is spent: `selfplay run --plan`.

Every row is read off the objects that the run would use, so that the plan cannot say something else.

Not here: drawing (`views.plan`), building the parts (`parts`).
"""

from __future__ import annotations

from collections.abc import Iterator

from selfplay import parts
from selfplay.config import Config
from selfplay.games.rewards import proposer_reward, solver_reward
from selfplay.project import Project
from selfplay.views.plan import PlanRow
from selfplay.warmup import WarmUp


def plan(config: Config, project: Project) -> tuple[PlanRow, ...]:
    """The plan, section by section.

    Raises:
        UserError, NotFound: as the run would.
    """
    players = parts.roles(config, project)
    return (
        *_play(config, project),
        *_roles(config, players),
        *_warmup(config),
        *_rewards(config),
        *_learning(config),
        *_books(config),
    )


def optimum(attempts: int) -> float:
    """The solve rate at which SSR's expected reward is highest: p* = 1 - G^(-1/(G-1)), G attempts.

    The expectation is 1 - (1 + alpha) (p + (1 - p)^G) for k ~ Binomial(G, p); alpha does not move its maximum.
    """
    return 1.0 - attempts ** (-1.0 / (attempts - 1)) if attempts > 1 else 0.0


def _play(config: Config, project: Project) -> Iterator[PlanRow]:
    play, seeds = config.play, config.curriculum.seeds
    plays = config.run.steps * seeds * play.proposals
    yield PlanRow(section="play", name="game", value=config.run.game)
    if config.run.game == "code":
        yield PlanRow(section="play", name="source", value=parts.source_of(config, project))
        held_out = f"functions of at most {config.game.max_lines} lines; {config.game.held_out:.0%} held out for ever"
        yield PlanRow(section="play", name="seeds", value=held_out)
        yield PlanRow(section="play", name="sandbox", value=config.sandbox.kind, note="no network, no host files")
    yield PlanRow(section="play", name="model", value=config.policy.model, note=f"policy {config.policy.kind}")
    yield PlanRow(
        section="play", name="steps", value=f"{config.run.steps} of {seeds} seeds, chosen by {config.curriculum.choose}"
    )
    yield PlanRow(
        section="play", name="proposals", value=f"P = {play.proposals} a seed", note=f"{plays} in all, refills aside"
    )
    yield PlanRow(
        section="play",
        name="attempts",
        value=f"G = {play.attempts} a task",
        note=f"at most {plays * play.attempts} in all, refills aside",
    )


def _roles(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    trained = players.trained(config.roles.train)
    for role in (players.proposer, players.solver):
        learns = "learns" if role.name in trained else "does not learn"
        value = f"{role.name}: {role.sampling.max_tokens} tokens at temperature {role.sampling.temperature:g}"
        yield PlanRow(section="roles", name=role.side, value=f"{value}; {learns}", note=role.origin)


def _warmup(config: Config) -> Iterator[PlanRow]:
    warmup = config.warmup
    if not warmup.steps:
        yield PlanRow(section="warm-up", name="none", value="self-play starts with the weights as they are")
        return
    value = f"at most {warmup.steps} updates of {warmup.examples} examples, learning rate {warmup.lr:g}"
    yield PlanRow(section="warm-up", name="supervised", value=value, note="procedural bugs; train seeds only")
    ends = WarmUp(steps=warmup.steps, examples=warmup.examples, check_every=warmup.check_every)
    low, high = ends.solve_rate
    rule = f"dev set: at least {ends.min_valid:.0%} valid and {low:.0%} to {high:.0%} solved"
    yield PlanRow(section="warm-up", name="ends", value=f"{rule}, looked at every {warmup.check_every} updates")


def _rewards(config: Config) -> Iterator[PlanRow]:
    alpha, viable, size = config.rewards.alpha, config.play.min_viable, config.play.attempts
    proposer = proposer_reward(config.rewards.proposer, alpha=alpha, min_viable=viable)
    solver = solver_reward(config.rewards.solver)
    note = f"s: solve rate; None below {viable} decided attempts"
    yield PlanRow(section="rewards", name="proposer", value=proposer.formula, note=note)
    if config.rewards.novelty:
        value = f"- {config.rewards.novelty:g} (copies - 1) / P for a task that is proposed more than once a step"
        yield PlanRow(section="rewards", name="novelty", value=value)
    if config.rewards.proposer == "ssr":
        value = f"p* = 1 - G^(-1/(G-1)) = {optimum(size):.3f} for G = {size}"
        yield PlanRow(section="rewards", name="asks for", value=value, note="the solve rate that pays most")
    yield PlanRow(section="rewards", name="solver", value=solver.formula)
    undecided = "None where nothing was decided: no sample, never 0"
    yield PlanRow(section="rewards", name="faults", value=undecided)


def _learning(config: Config) -> Iterator[PlanRow]:
    learner = config.learner
    yield PlanRow(
        section="learning", name="advantage", value=learner.estimator, note="inside one group, never across roles"
    )
    loss = f"max(-A r, -A clip(r, {1 - learner.clip_low:g}, {1 + learner.clip_high:g})), {learner.loss}"
    yield PlanRow(section="learning", name="loss", value=loss, note="r = pi / pi_old")
    weights = config.roles.weights
    value = "one mean over both roles" if weights == "pooled" else f"{weights[0]:g} proposer + {weights[1]:g} solver"
    yield PlanRow(section="learning", name="roles", value=value, note="each role's own token mean")
    kl = f"{learner.kl:g} k3 against the post-warm-up weights" if learner.kl else "none"
    yield PlanRow(section="learning", name="KL", value=kl)
    optimizer = f"AdamW, learning rate {learner.lr:g}, gradient norm at most {learner.max_grad_norm:g}"
    yield PlanRow(section="learning", name="optimizer", value=optimizer)
    precision = f"parameters and moments float32, forward in {learner.dtype}"
    yield PlanRow(section="learning", name="precision", value=precision)


def _books(config: Config) -> Iterator[PlanRow]:
    value = f"every {config.run.save_every} steps, the last {config.run.keep_saves} and the best kept"
    yield PlanRow(section="books", name="saves", value=value, note="updates in between are re-applied on resume")
    yield PlanRow(section="books", name="settings", value=config.digest, note="digest of what affects results")
