"""What a run would play and by which formulas, before anything is spent: `selfplay run --plan`.

Every row is read off the objects that the run would use, so that the plan cannot say something else.

Not here: drawing (`views.plan`), building the parts (`parts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selfplay import parts, samplers, sizing
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.curriculum import needs_of
from selfplay.curriculum.posterior import best_rate, optimum
from selfplay.errors import NotFound, UserError
from selfplay.games.rewards import solver_reward
from selfplay.learner.memory import FLOOR_MB, shape_of
from selfplay.mix import alone, games_of, shares_of
from selfplay.policy.models import described
from selfplay.project import Project
from selfplay.views.plan import Difference, PlanRow, differences
from selfplay.warmup import WarmUp


def plan(config: Config, project: Project) -> tuple[PlanRow, ...]:
    """The plan, section by section.

    Raises:
        UserError, NotFound: as the run would.
    """
    players = parts.roles(config, project)
    refuse_hidden(config, players)
    return (
        *_play(config, project, players),
        *_roles(config, players),
        *_warmup(config),
        *_rewards(config),
        *_learning(config, players),
        *_memory(config, players),
        *sizing.rows(config, players),
        *_books(config),
    )


def published(config: Config, project: Project) -> tuple[Difference, ...]:
    """Where the preset of that configuration is not as published, as it says itself; empty for what is no preset."""
    try:
        path = project.find("curriculum", config.name)
    except NotFound:
        return ()
    return differences(path.read_text(encoding="utf-8"))


def refuse_hidden(config: Config, players: parts.Players) -> None:
    """A solver that is to see hints must have a place for them in its prompt.

    Raises:
        UserError: it has not.
    """
    asked = "hint" in needs_of(parts.chooser(config, players)).terms or "hinted" in parts.worth(config).looks
    for solver in (pair.solver for pair in players.pairs if asked):
        if not re.search(r"\bhint\b", solver.prompt):
            raise UserError(
                f"attempts are to see a hint, and the prompt of role `{solver.name}` has no place for one",
                hint=f"put the variable `hint` into {solver.origin}/prompt.md; it is empty where there is no hint",
            )


def _play(config: Config, project: Project, players: parts.Players) -> Iterator[PlanRow]:
    play, seeds = config.play, config.curriculum.seeds
    plays = config.run.steps * seeds * play.proposals
    yield PlanRow(section="play", name="game", value=config.run.game, note=_shares(config))
    for single, pair in zip(alone(config), players.pairs, strict=True):
        if single.run.game == "code":
            yield from _code(single, project, pair)
        if single.run.game == "search":
            yield from _search(single, pair)
    sampler = samplers.planned(config)
    yield PlanRow(section="play", name="model", value=config.policy.model, note=f"policy {config.policy.backend}")
    yield PlanRow(section="play", name="sampler", value=sampler.words, note=f"guarantees {sampler.guarantees}")
    yield PlanRow(section="play", name="staleness", value=_staleness(config), note="run.staleness")
    if (wanted := parts.wanted_of(config)) is not None:
        engines = f"{wanted.nodes.engines} engines, " if wanted.nodes.engines else ""
        others = f"{wanted.ranks - 1} learner ranks beside the driver's"
        value = f"Ray: {wanted.nodes.sandboxes} sandbox actors, {engines}{others}"
        yield PlanRow(section="play", name="cluster", value=value, note="run.cluster")
    parts.chooser(config, players)
    options = ", ".join(f"{name} = {value}" for name, value in config.curriculum.options.items())
    chosen = f"{config.run.steps} of {seeds} seeds, chosen by {config.curriculum.choose}"
    yield PlanRow(section="play", name="steps", value=chosen, note=options)
    yield PlanRow(
        section="play",
        name="proposals",
        value=f"P = {play.proposals} a seed",
        note=f"at most {plays} in all, refills aside",
    )
    yield PlanRow(
        section="play",
        name="attempts",
        value=f"G = {play.attempts} a task",
        note=f"at most {plays * play.attempts} in all, refills aside",
    )


def _staleness(config: Config) -> str:
    ahead = config.run.staleness
    if not ahead:
        return "0: a step is played with the newest weights, and learnt from before the next one begins"
    return f"{ahead} played ahead: replies are at most {ahead} updates old when they are learnt from"


def _shares(config: Config) -> str:
    """How much of a step each game of a mix has."""
    named = [f"{share:.0%} {name}" for name, share in zip(games_of(config), shares_of(config), strict=True)]
    return f"{', '.join(named)} of the seeds; advantages never mix" if len(named) > 1 else ""


def _code(config: Config, project: Project, players: parts.Players) -> Iterator[PlanRow]:
    parts.refuse_pastless(config, project, players)
    for source in parts.sources_of(config, project):
        yield PlanRow(section="play", name="source", value=source)
    held_out = f"functions of at most {config.game.max_lines} lines; {config.game.held_out:.0%} held out for ever"
    yield PlanRow(section="play", name="seeds", value=held_out)
    yield PlanRow(section="play", name="sandbox", value=config.sandbox.kind, note="no network, no host files")


def _search(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    options, game = parts.search_options(config), config.game
    yield PlanRow(section="play", name="corpus", value=game.corpus, note=options.retriever or "words, SQLite FTS5")
    side = f"{game.held_out:.0%} of the documents held out for ever"
    yield PlanRow(section="play", name="seeds", value=f"at most {game.answers} answers of the corpus; {side}")
    form = f"several turns, {options.top_k} passages a search" if players.tools else f"{options.top_k} passages given"
    yield PlanRow(section="play", name="form", value=form, note=f"1 to {options.hops} searches asked of a question")
    made = ("quote", "closed_book", "unique", "answerable", "ablation")
    checks = ", ".join(name for name in made if getattr(options, name)) or "none: rules alone decide"
    noise = [f"noise: {options.noise} {options.noise_kind}"] if options.answerable else []
    cloze = ["a question is a passage's sentence with the answer left out"] if options.cloze else []
    yield PlanRow(section="play", name="checks", value=checks, note=" · ".join([*noise, *cloze]))


def _roles(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    trained = players.trained(config.roles.train)
    for role in players.everybody:
        learns = "learns" if role.name in trained else "does not learn"
        value = f"{role.name}: {role.sampling.max_tokens} tokens at temperature {role.sampling.temperature:g}"
        if role.tools is not None:
            # note: `env NAME=value ...` before a command says nothing of it.
            command = [word for word in role.tools.harness if word != "env" and "=" not in word]
            means = f"a harness ({command[0]})" if command else "tools"
            value = f"{value} a turn, {role.limits.turns} turns with {means}, {role.limits.context} tokens in all"
        yield PlanRow(section="roles", name=role.side, value=f"{value}; {learns}", note=role.origin)


_EXAMPLES = {"code": "procedural bugs", "search": "sentences with a blank", "echo": "none"}
"""What a warm-up is made of."""
_WARMING = "at its peak: a linear rise over 10% of them, a cosine to 10% of it"
"""How the learning rate of a warm-up goes. Source: `learner.options`."""


def _warmup(config: Config) -> Iterator[PlanRow]:
    warmup = config.warmup
    if not warmup.steps:
        yield PlanRow(section="warm-up", name="none", value="self-play starts with the weights as they are")
        return
    value = f"at most {warmup.steps} updates of {warmup.examples} examples, learning rate {warmup.lr:g} {_WARMING}"
    note = f"{', '.join(_EXAMPLES[name] for name in games_of(config))}; train seeds only"
    yield PlanRow(section="warm-up", name="supervised", value=value, note=note)
    ends = WarmUp(steps=warmup.steps, examples=warmup.examples, check_every=warmup.check_every)
    low, high = ends.solve_rate
    rule = f"dev set: at least {ends.min_valid:.0%} valid and {low:.0%} to {high:.0%} solved"
    looked = f"every {warmup.check_every} updates" if warmup.check_every else "once, after the last update"
    yield PlanRow(section="warm-up", name="ends", value=f"{rule}, looked at {looked}")


def _rewards(config: Config) -> Iterator[PlanRow]:
    viable, size = config.play.min_viable, config.play.attempts
    proposer = parts.worth(config)
    solver = solver_reward(config.rewards.solver)
    note = f"s: solve rate; None below {viable} decided attempts"
    yield PlanRow(section="rewards", name="proposer", value=proposer.formula, note=note)
    if config.rewards.novelty:
        value = f"- {config.rewards.novelty:g} (copies - 1) / P for a task that is proposed more than once a step"
        yield PlanRow(section="rewards", name="novelty", value=value)
    if config.rewards.proposer == "ssr":
        value = f"p* = 1 - G^(-1/(G-1)) = {optimum(size):.3f} for G = {size}"
        yield PlanRow(section="rewards", name="asks for", value=value, note="the solve rate that pays most")
    elif all(proposer(True, passed, size) is not None for passed in range(size + 1)):
        value = f"a solve rate of {best_rate(lambda k, n: proposer(True, k, n) or 0.0, size):.3f} for G = {size}"
        yield PlanRow(section="rewards", name="asks for", value=value, note="the one that pays most")
    yield PlanRow(section="rewards", name="solver", value=solver.formula)
    undecided = "None where nothing was decided: no sample, never 0"
    yield PlanRow(section="rewards", name="faults", value=undecided)


_ADVANTAGES = {
    "batch_std": "R - mean of the group, divided by the standard deviation of the role's rewards of the step",
    "dr_mas": "(R - mean) / standard deviation, both of the role's rewards of the step",
    "spiral": "R - moving average of the role's earlier rewards, decay 0.95",
    "raw": "R itself, without a baseline",
}
"""What estimators that look beyond one group do."""


_CORRECTIONS = {
    "token_truncated": "x min(pi_old / sampler, 2) a token",
    "sequence_truncated": "x min(pi_old / sampler, 2) a sequence",
    "icepop": "x pi_old / sampler a token where it lies in 0.5..2, else 0",
    "sequence_masked": "x pi_old / sampler a sequence where it is at most 3, else 0",
}
"""Importance weights of the loss, for a sampler that computes otherwise than the learner."""


def _learning(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    learner = config.learner
    parts.estimator(config)
    note = _ADVANTAGES.get(learner.estimator, "inside one group, never across roles")
    if "," in learner.estimator:
        note = "the proposer's and the solver's"
    yield PlanRow(section="learning", name="advantage", value=learner.estimator, note=note)
    yield from _loss(config, players)
    if credit := parts.credit_of(config, players):
        names = ", ".join(role.name for role in credit.roles.values())
        value = f"{names}: each reply by how much likelier it made the known answer, the last by the reward"
        yield PlanRow(section="learning", name="credit", value=value, note="IGPO, arXiv 2510.14967; standardised")
    if learner.order != "joint":
        value = learner.order.replace("_", " ")
        note = "two updates a step; pi_old is the policy before the first"
        yield PlanRow(section="learning", name="order", value=value, note=note)
    if weighed := samplers.correction(config):
        why = "the sampler has a copy of the weights" if learner.correction == "auto" else "as asked"
        yield PlanRow(section="learning", name="correction", value=_CORRECTIONS[weighed], note=why)
    kl = f"{learner.kl:g} {learner.kl_estimator} against the post-warm-up weights" if learner.kl else "none"
    yield PlanRow(section="learning", name="KL", value=kl)
    yield _optimizer(config)
    kept = "parameters and moments float32" if learner.optimizer == "adamw" else "parameters float32, moments in 8 bits"
    precision = f"{kept}, forward in {learner.dtype}"
    if learner.lora_rank:
        whose = ", for each role its own" if learner.lora_per_role else ""
        precision = f"adapters of rank {learner.lora_rank}{whose}: {precision}"
    yield PlanRow(section="learning", name="precision", value=precision)


_ADAMW = "betas 0.9 and 0.95, epsilon 1e-08"
"""Source: `learner.options`, `learner.optimizer`, which wait for torch."""


def _optimizer(config: Config) -> PlanRow:
    learner = config.learner
    rate = f"learning rate {learner.lr:g}"
    # note: a ramp of one update is none.
    rate += f" after a linear rise over {learner.ramp} updates" if learner.ramp > 1 else ""
    value = f"AdamW, {rate}, gradient norm at most {learner.max_grad_norm:g}"
    decay = f"weight decay {learner.weight_decay:g}"
    return PlanRow(section="learning", name="optimizer", value=value, note=f"{_ADAMW}, {decay}")


_CLIPPED = "max(-A r, -A clip(r, {below:g}, {above:g}))"
_RATIO = "r = pi / pi_old"
_LOSSES = {
    "token_mean": (_CLIPPED, _RATIO),
    "sequence_mean": (_CLIPPED, _RATIO),
    "dr_grpo": (_CLIPPED, _RATIO),
    "dual_clip": (f"{_CLIPPED}, at most -3 A where A < 0", _RATIO),
    "gspo": (_CLIPPED, "log r = mean of log(pi / pi_old) over the sequence; GSPO's own clip is 0.9997, 1.0004"),
    "cispo": ("-min(r, {high:g}) A log pi", f"{_RATIO}, without gradient"),
}
"""A token's loss and what r is. Source: `learner.grpo`."""
_OWN = ("its own, with clip_low = {low:g} and clip_high = {high:g}", "")
_MEANS = {
    "sequence_mean": "mean of its sequences' token means",
    "dr_grpo": "sum over its tokens / ({horizon} x its sequences)",
    "gspo": "mean of its sequences' token means",
}
"""How a role's token losses become one; those of other losses by their mean."""


def _loss(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    """What a token loses, and how tokens and roles are put together."""
    learner, weights = config.learner, config.roles.weights
    _refuse_loss(config, players)
    formula, note = _LOSSES.get(learner.loss, _OWN)
    low, high = learner.clip_low, learner.clip_high
    value = formula.format(low=low, high=high, below=1 - low, above=1 + high)
    yield PlanRow(section="learning", name="loss", value=f"{value}, {learner.loss}", note=note)
    mean = _MEANS.get(learner.loss, "token mean").format(horizon=players.horizon)
    if weights == "pooled":
        note = f"all are taken for one role: {mean}"
        yield PlanRow(section="learning", name="roles", value="one mean over all roles", note=note)
        return
    value = f"{weights[0]:g} proposer + {weights[1]:g} solver"
    share = ", times its game's share" if len(games_of(config)) > 1 else ""
    yield PlanRow(section="learning", name="roles", value=value, note=f"each role's own {mean}{share}")


def _refuse_loss(config: Config, players: parts.Players) -> None:
    """The loss is there and can do with its clip.

    Raises:
        UserError: as the learner would.
    """
    learner = config.learner
    # note: what most plan need not wait for torch; from an endpoint nothing is learnt.
    if learner.loss != "token_mean" and config.policy.backend != "openai":
        from selfplay.learner.options import Options, rule_of

        rule_of(
            Options(
                lr=learner.lr,
                warmup_lr=config.warmup.lr,
                loss=learner.loss,
                clip_high=learner.clip_high,
                horizon=players.horizon,
            )
        )


def _memory(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    """The peak by component; refuses what cannot fit."""
    if config.policy.backend in ("openai", "tinker"):
        yield PlanRow(section="memory", name="in all", value=f"{FLOOR_MB} MB", note="no weights: the server has them")
        return
    if config.policy.backend == "vllm":
        value = f"the weights once more and {samplers.engine_gb(config):g} GiB for keys and values"
        note = "in each engine's own process, beside what follows"
        yield PlanRow(section="memory", name="vLLM", value=value, note=note)
    if config.policy.model == parts.TOY:
        yield PlanRow(section="memory", name="in all", value=f"{FLOOR_MB} MB", note="Python and its libraries")
        return
    settings = described(config.policy.model, cache=cache_folder())
    shape = None if settings is None else shape_of(settings)
    if shape is None:
        why = "its config.json is not on this disk yet" if settings is None else "a kind of model that is not counted"
        yield PlanRow(section="memory", name="unknown", value=f"{config.policy.model}: {why}")
        return
    expected = parts.forecast_of(config, players, shape)
    if config.learner.memory_mb:
        expected.check()
    for name, mb in (*expected.fixed.items(), *expected.update.items()):
        yield PlanRow(section="memory", name=name, value=f"{mb:.0f} MB")
    limit = f"of {expected.limit_mb:.0f} MB that learner and sampler may use"
    yield PlanRow(section="memory", name="in all", value=f"{expected.total_mb:.0f} MB", note=limit)
    again = f"{expected.recomputed} of {expected.micro_batches} micro-batches" if expected.recomputed else "none"
    yield PlanRow(section="memory", name="layers computed again", value=again, note="in a step where all groups teach")
    longest = f"{expected.longest_mb:.0f} MB with layers computed again"
    yield PlanRow(section="memory", name="longest sample", value=f"{expected.longest_tokens} tokens: {longest}")


def _books(config: Config) -> Iterator[PlanRow]:
    value = f"every {config.run.save_every} steps, the last {config.run.keep_saves} and the best kept"
    yield PlanRow(section="books", name="saves", value=value, note="updates in between are re-applied on resume")
    stop = parts.watch(config).stop
    ends = f"{', '.join(stop)} {'ends' if len(stop) == 1 else 'end'} the run, the others warn" if stop else "all warn"
    yield PlanRow(section="books", name="alarms", value=ends, note="selfplay ls alarms")
    yield PlanRow(section="books", name="settings", value=config.digest, note="digest of what affects results")
