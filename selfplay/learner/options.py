"""How the learner learns: its options, and what follows from them alone: rates, loss rule, token weights. Pure.

Not here: the formulas (`grpo`), the updates (`trainer`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Literal, cast

import torch

from selfplay.errors import UserError
from selfplay.learner import grpo
from selfplay.learner.batch import num_trained
from selfplay.learner.master import DType
from selfplay.learner.optimizer import Kind
from selfplay.types import Sample, record

WARMUP_RAMP = 0.1
"""Share of the warm-up's updates over which its learning rate rises; it then falls by a cosine ..."""
WARMUP_FLOOR = 0.1
"""... to this share of the peak."""
ROLE_WEIGHT = 0.5


@record
class Options:
    """How the learner learns."""

    lr: float
    """AdamW's rate in the play phase: constant, after `ramp` updates of linear rise."""
    warmup_lr: float
    """Peak rate of the warm-up."""
    dtype: DType = "bfloat16"
    """Of the compute copy; parameters and moments are always float32."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    optimizer: Kind = "adamw"
    """`adamw8bit` keeps the moments in 8 bits (`optimizer`)."""
    lora_rank: int = 0
    """Rank of the adapters that learn; 0: all weights do."""
    lora_roles: tuple[str, ...] = ()
    """Roles that have an adapter each; none: one learns for all."""
    seed: int = 0
    """Of the first values of adapters."""
    max_grad_norm: float = 1.0
    ramp: int = 0
    role_weights: Mapping[str, float] | Literal["pooled"] = field(default_factory=dict)
    """Weight of each role's own mean; 0.5 for a role not named. `pooled`: one mean over all roles."""
    loss: str = "token_mean"
    """A name in `grpo.LOSSES`, or `module:function`, a token loss reduced as `token_mean`."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    horizon: int | None = None
    """Tokens that the loss `dr_grpo` divides by."""
    correction: str | None = None
    """A name in `grpo.CORRECTIONS`, for samplers whose probabilities differ from the learner's."""
    kl_coef: float = 0.0
    """Weight of the divergence from the pinned reference."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    order: tuple[tuple[str, ...], ...] = ()
    """Roles that learn one after the other in a step, each from its own replies; none: all at once."""
    updates_per_step: int = 1
    """Optimizer steps on one batch; above 1, `old` is computed in a pass of its own."""
    token_budget: int = 4096
    """Tokens a micro-batch; decides memory and speed, and the last bits of the result."""
    memory_mb: float | None = None
    """What learner and sampler may use. A micro-batch that would need more has its layers computed again in the
    backward pass: the same bits in less memory and more time. None: none has."""
    sampler_rows: int = 0
    """Replies that the sampler decodes at the same time, for the size of its cache."""
    threads: int = 2
    device: str = "cpu"
    """Where parameters, gradients and moments lie and updates are computed (`placing`)."""
    ranks: int = 1
    """Processes that hold a part of the weights each and learn together (`ranks`)."""


def play_lr(options: Options, *, index: int) -> float:
    """Learning rate of play update number `index`."""
    return options.lr * min(1.0, (index + 1) / max(1, options.ramp))


def warmup_lr(options: Options, *, index: int, total: int) -> float:
    """Learning rate of warm-up update `index` of `total`: linear rise, then cosine fall to a tenth."""
    ramp = max(1, math.ceil(WARMUP_RAMP * total))
    if index < ramp:
        return options.warmup_lr * (index + 1) / ramp
    done = min(1.0, (index + 1 - ramp) / max(1, total - ramp))
    return options.warmup_lr * (WARMUP_FLOOR + (1.0 - WARMUP_FLOOR) * 0.5 * (1.0 + math.cos(math.pi * done)))


def rule_of(options: Options) -> grpo.Rule:
    """The loss that `options.loss` names.

    Raises:
        UserError: there is no such loss, or it lacks what it needs.
    """
    if options.loss in grpo.LOSSES:
        rule = grpo.LOSSES[options.loss]
        if rule.reduction == "constant" and not options.horizon:
            raise UserError(f"the loss `{options.loss}` divides by a constant, and none is given", hint="set `horizon`")
        if rule.token_loss is grpo.cispo:
            grpo.require_cap(options.clip_high)
        return rule
    module, colon, name = options.loss.partition(":")
    if not colon:
        known = ", ".join(grpo.LOSSES)
        raise UserError(f"no loss `{options.loss}`", hint=f"one of {known}, or module:function")
    try:
        token_loss = vars(importlib.import_module(module))[name]
    except (ImportError, KeyError) as error:
        raise UserError(f"no loss `{options.loss}`: {error}", hint="module:function, importable from here") from error
    return grpo.Rule(token_loss=cast(grpo.TokenLoss, token_loss), reduction="token_mean")


def correction_of(options: Options) -> grpo.Correction | None:
    """The sampler correction that `options.correction` names.

    Raises:
        UserError: there is no such correction.
    """
    if options.correction is None:
        return None
    if options.correction not in grpo.CORRECTIONS:
        known = ", ".join(grpo.CORRECTIONS)
        raise UserError(f"no sampler correction `{options.correction}`", hint=f"one of {known}")
    return grpo.CORRECTIONS[options.correction]


def token_weights(samples: Sequence[Sample], members: Sequence[int], *, options: Options) -> dict[int, float]:
    """Weight of each trained token of each member: role weight x reduction within the role.

    The loss is then the plain sum of weight x token loss, however the batch is cut.
    """
    rule = rule_of(options)
    reductions: dict[str, grpo.Reduction] = {
        "token_mean": grpo.token_mean,
        "sequence_mean": grpo.sequence_mean,
        "constant": partial(grpo.constant, horizon=options.horizon or 1),
    }
    by_role: dict[str, list[int]] = {}
    for member in members:
        role = "" if options.role_weights == "pooled" else samples[member].role
        by_role.setdefault(role, []).append(member)
    weights: dict[int, float] = {}
    for role, own in by_role.items():
        share = 1.0 if options.role_weights == "pooled" else options.role_weights.get(role, ROLE_WEIGHT)
        weight_B = reductions[rule.reduction](torch.tensor([num_trained(samples[member]) for member in own]))
        weights |= {member: share * weight for member, weight in zip(own, weight_B.tolist(), strict=True)}
    return weights
