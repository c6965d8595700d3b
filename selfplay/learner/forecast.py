"""What a run will need of memory, before anything is loaded: its fixed part, a full step, the longest sample. Pure.

A full step is one in which every group teaches something: each proposal and attempt is as long as its role
allows, behind prompts of `PROMPT_TOKENS`. Real steps have fewer and shorter replies; no micro-batch of theirs
exceeds the token budget either, unless one sample alone does. That is the longest sample: one that fills the
model's context.

Not here: what a tensor takes (`memory`), drawing (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfplay.errors import UserError
from selfplay.learner.batch import Row, pack, partition
from selfplay.learner.memory import CACHE_TOKENS, Setup, Shape, fixed, room_of, update_mb
from selfplay.types import Sample, record

PROMPT_TOKENS = 512
"""Length that is assumed of every prompt."""


@record
class Groups:
    """Groups of one role in a full step."""

    role: str
    number: int
    size: int
    """Replies of each."""
    reply_tokens: int


@record
class Forecast:
    """Memory in MB, and how a full step is cut."""

    fixed: Mapping[str, float]
    update: Mapping[str, float]
    """Of the largest micro-batch of a full step."""
    limit_mb: float
    micro_batches: int
    recomputed: int
    """How many of them have their layers computed again."""
    longest_tokens: int
    longest_mb: float
    """Everything, where one sample of `longest_tokens` is learnt from with its layers computed again."""

    @property
    def total_mb(self) -> float:
        """The peak of a full step."""
        return sum(self.fixed.values()) + sum(self.update.values())

    def check(self) -> None:
        """Refuse what cannot fit.

        Raises:
            UserError: the longest sample needs more than the limit, even with its layers computed again.
        """
        if self.longest_mb > self.limit_mb:
            raise UserError(
                f"one sample of {self.longest_tokens} tokens, as long as the model's context, needs "
                f"{self.longest_mb:.0f} MB, and learner and sampler may use {self.limit_mb:.0f} MB",
                hint=f"allow more: -s learner.memory_mb={self.longest_mb + 1:.0f}; or take less: "
                "-s policy.max_rows=8, -s learner.lora_rank=8, or a smaller policy.model",
            )


def forecast(shape: Shape, setup: Setup, groups: Sequence[Groups], *, token_budget: int, limit_mb: float) -> Forecast:
    """What a run of model `shape` needs; `groups` are those of a full step, `limit_mb` what it may use."""
    room = room_of(shape, setup, memory_mb=limit_mb)
    rows = [row for one in groups for row in _rows(one, token_budget=token_budget)]
    again = [room.tight(row) for row in rows]
    needs = [update_mb(shape, row, setup=setup, recompute=tight) for row, tight in zip(rows, again, strict=True)]
    always = fixed(shape, setup)
    longest = min(shape.context, CACHE_TOKENS)
    reply = min(max((one.reply_tokens for one in groups), default=1), longest - 1)
    sample = _sample("longest", prompt=range(longest - reply), reply=range(reply))
    need = update_mb(shape, pack([sample], [0]), setup=setup, recompute=True)
    return Forecast(
        fixed=always,
        update=max(needs, key=lambda found: sum(found.values()), default={}),
        limit_mb=limit_mb,
        micro_batches=len(rows),
        recomputed=sum(again),
        longest_tokens=longest,
        longest_mb=sum(always.values()) + sum(need.values()),
    )


def _rows(groups: Groups, *, token_budget: int) -> list[Row]:
    samples = [
        _sample(f"{group}.{i}", prompt=(group,) * PROMPT_TOKENS, reply=(i,) * groups.reply_tokens)
        for group in range(groups.number)
        for i in range(groups.size)
    ]
    return [pack(samples, part) for part in partition(samples, range(len(samples)), token_budget=token_budget)]


def _sample(name: str, *, prompt: Sequence[int], reply: Sequence[int]) -> Sample:
    return Sample(
        trajectory_id=name,
        role="",
        group_id="",
        token_ids=(*prompt, *reply),
        trained=(False,) * len(prompt) + (True,) * len(reply),
        sampler_logprobs=(0.0,) * (len(prompt) + len(reply)),
        advantage=1.0,
    )
