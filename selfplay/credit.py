"""Turn credit in a run: where `learner.credit` asks for it, a batch's solvers are credited reply by reply.

The learner itself scores the known answer before each reply, with the weights before the step, so nothing of it is
recorded: a step that is applied again scores it again, and gets the same bits where its update does. Groups are those
of the ledger. One whose outcomes do not differ is learnt from by its turns alone, as in IGPO, whose point that is: its
advantages in the ledger are 0, and it counts as informative. That its turns gained something shows only when they are
scored; where none did, the learner finds nothing in it.

A play may end so near the end of the model's context that the known answer has no room in the place of its last reply.
Its group is learnt from by its plain advantages, whenever the step is applied, as that follows from lengths alone.

Not here: the formula (`learner.credit`), what the known answer of a task is (`games.gold`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from selfplay.games import Cast
from selfplay.games.gold import Gold, gold_of
from selfplay.learner.credit import gains_of, turn_advantages
from selfplay.stages import Played
from selfplay.types import Batch, Group, Sample

if TYPE_CHECKING:
    from selfplay.learner import Learner
    from selfplay.ledger import Reader
    from selfplay.loop import Settings
    from selfplay.policy import Policy, Tokenizer

T = TypeVar("T")


class Site(Protocol):
    """Where a batch is learnt from."""

    @property
    def settings(self) -> Settings: ...

    @property
    def ledger(self) -> Reader: ...

    @property
    def learner(self) -> Learner: ...

    @property
    def policy(self) -> Policy: ...

    async def on_torch(self, job: Callable[[], T]) -> T:
        """Run `job` on the torch thread."""
        ...


def teaching(groups: Iterable[Group], plays: Iterable[Played], credit: Cast | None) -> tuple[Group, ...]:
    """The groups; those that turns teach are informative: two plays can be learnt from, one of them by several replies.

    Plays that a limit ended carry no loss, and do not count.
    """
    roles = set() if credit is None else {role.name for role in credit.roles.values()}
    replies = {
        played.trajectory.id: sum(turn.sampled for turn in played.trajectory.turns)
        for played in plays
        if played.trajectory.role in roles and not played.trajectory.stop.truncated
    }

    def teaches(group: Group) -> bool:
        own = [replies[one] for one in group.trajectory_ids if replies.get(one)]
        return len(own) > 1 and max(own) > 1

    return tuple(
        replace(group, informative=True) if group.role in roles and not group.informative and teaches(group) else group
        for group in groups
    )


def by_turns(groups: Iterable[Group]) -> int:
    """How many of the groups of `teaching` their turns alone teach."""
    return sum(group.informative and not any(group.advantages) for group in groups)


async def credited(site: Site, batch: Batch, groups: Iterable[Group]) -> Batch:
    """`batch` with an advantage a token for the attempts of roles that are credited reply by reply."""
    roles = {} if site.settings.credit is None else {role.name: role for role in site.settings.credit.roles.values()}
    places = {sample.trajectory_id: at for at, sample in enumerate(batch.samples)}
    samples = list(batch.samples)
    for group in groups:
        own = [
            (places[one], reward)
            for one, reward in zip(group.trajectory_ids, group.rewards, strict=True)
            if one in places
        ]
        task = site.ledger.task(group.subject_id) if group.role in roles and own else None
        gold = None if task is None else gold_of(task, roles[group.role])
        if gold is None:
            continue
        probes = [_probes(samples[at], gold, site.policy.tokenizer) for at, _ in own]
        if max(len(probe.token_ids) for one in probes for probe in one) > _most_tokens(site):
            continue
        gains = await _gains(site, probes, temperature=batch.temperature)
        advantages = turn_advantages(gains, [reward for _, reward in own])
        for (at, _), turns in zip(own, advantages, strict=True):
            samples[at] = replace(samples[at], token_advantages=_a_token(samples[at], turns))
    return replace(batch, samples=tuple(samples))


def _most_tokens(site: Site) -> float:
    """Of a sample that the learner can score, as `learner.forward` sees it: its last token needs no place.

    A learner whose model is elsewhere is taken to have the room that its sampler has.
    """
    model: Any = getattr(site.learner, "model", None)
    if model is None:
        return site.policy.capabilities.max_context
    context: int | None = getattr(model.config, "max_position_embeddings", None)
    return math.inf if context is None else context + 1


async def _gains(site: Site, asked: Sequence[Sequence[Sample]], *, temperature: float) -> list[tuple[float, ...]]:
    """What each reply but the last gained, of each play, of which its probes are asked."""
    probes = [probe for one in asked for probe in one]
    scored = iter(await site.on_torch(lambda: site.learner.logprobs(probes, temperature=temperature)))
    return [gains_of([next(scored) for _ in one]) for one in asked]


def _probes(sample: Sample, gold: Gold, tokenizer: Tokenizer) -> list[Sample]:
    """The known answer in the place of each reply."""
    opens, answer = tokenizer.encode(gold.opens), tokenizer.encode(gold.answer)
    probes = []
    for start, _ in turns_of(sample):
        before = (*sample.token_ids[:start], *opens)
        probes.append(
            Sample(
                trajectory_id=sample.trajectory_id,
                role=sample.role,
                group_id=sample.group_id,
                token_ids=(*before, *answer),
                trained=(False,) * len(before) + (True,) * len(answer),
                sampler_logprobs=(0.0,) * (len(before) + len(answer)),
                advantage=0.0,
            )
        )
    return probes


def turns_of(sample: Sample) -> list[tuple[int, int]]:
    """Where each reply begins and ends among the sample's tokens."""
    found, at = [], 0
    for trained, run in groupby(sample.trained):
        length = sum(1 for _ in run)
        found += [(at, at + length)] if trained else []
        at += length
    return found


def _a_token(sample: Sample, turns: Sequence[float]) -> tuple[float, ...]:
    """The advantage of each trained token."""
    lengths = [end - start for start, end in turns_of(sample)]
    return tuple(value for value, length in zip(turns, lengths, strict=True) for _ in range(length))
