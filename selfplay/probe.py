"""Do sampler and learner mean the same model? A few fixed tokens, sampled by one and scored by the other.

What ruins runs silently is a sampler whose weights or arithmetic are not the learner's. So after every update (and
before the first step of a launch) the policy samples a few short replies to fixed prompts, and the learner scores the
same tokens at the same temperature. Both give log-probabilities of what was sampled; with equal weights they differ by
rounding only. Prompts, seeds and lengths follow from the run's seed, so equal runs have equal figures.

With a model of 135 million parameters in bfloat16 a probe takes 0.5 seconds of processor time, about 2 % of a step of
the quickstart.

Not here: what difference is too large, and what happens then (`alarms`); the same comparison on the step's own tokens
under the weights before the update (`sampler_gap`, in `learner.tally`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from selfplay.errors import RunFailed
from selfplay.games import cast
from selfplay.policy import Completion, Request
from selfplay.rollout import encode, render
from selfplay.types import Sample, Sampling, Seed, Update, draw, record

if TYPE_CHECKING:
    from selfplay.loop import Run

PROMPTS = 2
"""Prompts, of as many train seeds."""
REPLIES = 2
"""Replies a prompt."""
TOKENS = 4
"""Longest reply."""
PROMPT_TOKENS = 32
"""Of a longer prompt its end: a prompt costs more than its replies, and the arithmetic of a short one is the same."""


@record
class Probe:
    """How far sampler and learner are apart on the tokens of the probe."""

    gap: float
    """Mean |learner - sampler| of the log-probabilities, in nats; 0 of no token."""
    ratio_max: float
    """Greatest exp(learner - sampler); 1 of no token."""
    tokens: int
    sampler_version: int
    """Of the weights that the sampler says it used."""
    learner_version: int

    @property
    def metrics(self) -> dict[str, float]:
        """As they stand in every step's row."""
        return {
            "probe_gap": self.gap,
            "probe_ratio_max": self.ratio_max,
            "probe_tokens": float(self.tokens),
            "probe_sampler_version": float(self.sampler_version),
            "probe_learner_version": float(self.learner_version),
        }


async def probed(run: Run, seeds: Sequence[Seed], update: Update) -> Update:
    """`update` with the figures of the weights after it among its metrics.

    Raises:
        RunFailed: a log-probability is not finite.
    """
    found = await measure(run, seeds)
    return replace(update, metrics={**update.metrics, **found.metrics})


async def measure(run: Run, seeds: Sequence[Seed]) -> Probe:
    """Sample the probe, score it, compare; a sampler that nothing is learnt from has nothing to agree with: no token.

    Raises:
        RunFailed: a log-probability is not finite.
    """
    learner = run.learner
    if not run.policy.capabilities.trains:
        version = learner.policy_version
        return compare((), (), sampler_version=version, learner_version=version)
    asked = requests(run, seeds)
    replies = await asyncio.gather(*(run.policy.sample(request) for request in asked))
    samples = [sample_of(request, reply) for request, reply in zip(asked, replies, strict=True)]
    scored = await run.on_torch(lambda: learner.logprobs(samples, temperature=run.settings.temperature))
    version = learner.policy_version
    return compare(
        [reply.logprobs for reply in replies],
        scored,
        sampler_version=min((reply.policy_version[0] for reply in replies), default=version),
        learner_version=version,
    )


def requests(run: Run, seeds: Sequence[Seed]) -> tuple[Request, ...]:
    """What the sampler is asked: proposer prompts of `PROMPTS` train seeds drawn by the run's seed, `REPLIES` each."""
    who, seed = cast(run.game, "proposer"), run.settings.seed
    train = sorted((s for s in seeds if s.split == "train"), key=lambda s: draw(seed, "probe", s.id))
    room = min(PROMPT_TOKENS, run.policy.capabilities.max_context - TOKENS)
    sampling = Sampling(temperature=run.settings.temperature, max_tokens=TOKENS)
    views = [(who.of(s), run.game.proposer_view(s)) for s in train[:PROMPTS]]
    prompts = [encode(role, render(role, view), run.policy.tokenizer) for role, view in views]
    return tuple(
        Request(prompt_ids=prompt[-room:], sampling=sampling, seed=draw(seed, "probe", number, index), role=role.name)
        for number, (prompt, (role, _)) in enumerate(zip(prompts, views, strict=True))
        for index in range(REPLIES)
    )


def sample_of(request: Request, reply: Completion) -> Sample:
    """A reply as the learner scores it: every sampled token counts."""
    before, made = len(request.prompt_ids), len(reply.token_ids)
    return Sample(
        trajectory_id="probe",
        role=request.role,
        group_id="probe",
        token_ids=(*request.prompt_ids, *reply.token_ids),
        trained=(False,) * before + (True,) * made,
        sampler_logprobs=(0.0,) * before + reply.logprobs,
        advantage=0.0,
    )


def compare(
    sampler: Sequence[Sequence[float]],
    learner: Sequence[Sequence[float]],
    *,
    sampler_version: int,
    learner_version: int,
) -> Probe:
    """The figures of two sets of log-probabilities (natural log) of the same tokens, a sequence a reply.

    Raises:
        RunFailed: one of them is not finite.
    """
    pairs = [pair for ours, theirs in zip(learner, sampler, strict=True) for pair in zip(ours, theirs, strict=True)]
    differences = [ours - theirs for ours, theirs in pairs]
    if not all(map(math.isfinite, differences)):
        raise RunFailed(
            f"log-probabilities of the probe are not finite: the weights (version {learner_version}) are damaged",
            hint="go on from an earlier save with a lower learner.lr: selfplay run --fork RUN -s learner.lr=X",
        )
    return Probe(
        gap=math.fsum(map(abs, differences)) / max(1, len(differences)),
        ratio_max=math.exp(max(differences, default=0.0)),
        tokens=len(differences),
        sampler_version=sampler_version,
        learner_version=learner_version,
    )


def of_metrics(metrics: Mapping[str, float]) -> Probe | None:
    """The probe that a step's row holds; None where it holds none."""
    if "probe_gap" not in metrics:
        return None
    return Probe(
        gap=metrics["probe_gap"],
        ratio_max=metrics["probe_ratio_max"],
        tokens=int(metrics["probe_tokens"]),
        sampler_version=int(metrics["probe_sampler_version"]),
        learner_version=int(metrics["probe_learner_version"]),
    )
