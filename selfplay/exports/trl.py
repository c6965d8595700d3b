"""The samples of updates as `trl.GRPOTrainer` takes them, so that it computes the loss that the learner computed.

The learner's loss is a sum over trained tokens of weight x correction x token loss; the weight holds the role's share
and the reduction, the correction the sampler's (`learner.options.token_weights`, `learner.grpo`). TRL's `dapo` is a sum
of token losses over `num_items_in_batch`, and each of its token losses is linear in a positive factor of the advantage.
So `advantages` are the learner's, a number a token, times weight, correction and that count, and one setting of TRL
serves every loss that the learner has. Source: `GRPOTrainer._compute_loss`, TRL 1.16.0.

A row is a sample; its `config` has the arguments of `GRPOConfig` and what the update's loss was. README.md beside this
file shows how the rows become `inputs`.

Not here: a loss given as `module:function`, which TRL does not have (refused); the divergence from a reference, whose
log-probabilities the ledger does not keep (noted); who was sampled by what (`tables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from selfplay.errors import UserError
from selfplay.exports.seam import ONLY_STEP, Asked, Made, Out, Simple, require_rows
from selfplay.types import Group, Sample, Update

if TYPE_CHECKING:
    from selfplay.learner.options import Options

CAP = 3.0
"""Of `dual_clip`: TRL's `delta`. Source: `learner.grpo.dual_clipped`."""


def arguments(options: Options, *, temperature: float) -> dict[str, Any]:
    """What `GRPOConfig` must be given, beside paths and sizes.

    Raises:
        UserError: TRL has no such loss.
    """
    from selfplay.learner.grpo import LOSSES

    if options.loss not in LOSSES:
        raise UserError(
            f"the loss `{options.loss}` is a function of your own, which TRL does not have",
            hint=f"runs with one of these can be exported: {', '.join(LOSSES)}",
        )
    found: dict[str, Any] = {
        "loss_type": "cispo" if options.loss == "cispo" else "dapo",
        "epsilon": options.clip_low,
        "epsilon_high": options.clip_high,
        "beta": 0.0,
        "temperature": temperature,
        "importance_sampling_level": "sequence" if options.loss == "gspo" else "token",
        "learning_rate": options.lr,
        "weight_decay": options.weight_decay,
        "adam_beta1": options.betas[0],
        "adam_beta2": options.betas[1],
        "max_grad_norm": options.max_grad_norm,
    }
    return {**found, "delta": CAP} if options.loss == "dual_clip" else found


def rows_of(
    update: Update, samples: Sequence[Sample], groups: Sequence[Group], *, options: Options
) -> list[dict[str, Any]]:
    """A row a sample that the update learnt from, in its order."""
    from selfplay.learner.batch import informative, num_context, num_trained
    from selfplay.learner.options import token_weights

    members = informative(samples)
    weights = token_weights(samples, members, options=options)
    items = sum(num_trained(samples[member]) for member in members)
    rewards = {
        name: reward for group in groups for name, reward in zip(group.trajectory_ids, group.rewards, strict=True)
    }
    rows = []
    for member in members:
        sample = samples[member]
        start = num_context(sample)
        trained = sample.trained[start:]
        old = _spread(update.old_logprobs[member], trained) if update.old_logprobs[member] else None
        factors = _corrections(sample, old, trained, start=start, options=options)
        scale = sample.advantage * weights[member] * items
        rows.append(
            {
                "step": update.step,
                "trajectory_id": sample.trajectory_id,
                "group_id": sample.group_id,
                "role": sample.role,
                "prompt_ids": list(sample.token_ids[:start]),
                "completion_ids": list(sample.token_ids[start:]),
                "completion_mask": [1] * len(trained),
                "tool_mask": [int(one) for one in trained],
                "old_per_token_logps": old,
                "sampling_per_token_logps": list(sample.sampler_logprobs[start:]),
                "reward": rewards[sample.trajectory_id],
                "advantage": sample.advantage,
                "advantages": [scale * factor for factor in factors],
                "num_items_in_batch": items,
            }
        )
    return rows


def _spread(values: Sequence[float], trained: Sequence[bool]) -> list[float]:
    """One a token of the completion, 0 where it carries no loss."""
    found = iter(values)
    return [next(found) if one else 0.0 for one in trained]


def _corrections(
    sample: Sample, old: Sequence[float] | None, trained: Sequence[bool], *, start: int, options: Options
) -> list[float]:
    """What the loss of each token of the completion is multiplied by because another policy sampled it."""
    from selfplay.learner.options import correction_of

    correction = correction_of(options)
    if correction is None or old is None:
        return [1.0] * len(trained)
    import torch

    mask = torch.tensor([trained])
    sampler = torch.tensor([sample.sampler_logprobs[start:]])
    found = correction(torch.tensor([old]), sampler_BT=sampler, mask_BT=mask)
    return [float(one) for one in found[0]]


def _samples(asked: Asked, update: Update, groups: Sequence[Group]) -> tuple[Sample, ...]:
    from selfplay.batches import batch_again

    plays = asked.reader.trajectories_by_id(update.trajectory_ids)
    # note: the temperature is not a sample's.
    return batch_again(update, plays, groups, temperature=1.0).samples


def _options_of(asked: Asked) -> tuple[Options, float]:
    """Of the learner's options those that its loss depends on, and the sampling temperature."""
    from selfplay import parts, samplers
    from selfplay.config import from_run
    from selfplay.learner.options import Options

    config = from_run(asked.reader.folder, project=asked.project, environ={})
    players = parts.roles(config, asked.project)
    options = Options(
        lr=config.learner.lr,
        warmup_lr=config.warmup.lr,
        weight_decay=config.learner.weight_decay,
        max_grad_norm=config.learner.max_grad_norm,
        role_weights=parts.role_weights(config, players),
        loss=config.learner.loss,
        clip_low=config.learner.clip_low,
        clip_high=config.learner.clip_high,
        kl_coef=config.learner.kl,
        correction=samplers.correction(config),
        horizon=players.horizon,
    )
    return options, players.temperature


def _write(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    options, temperature = _options_of(asked)
    given = arguments(options, temperature=temperature)
    count, skipped, pruned = 0, 0, False
    for step in asked.steps:
        update = asked.reader.update(step)
        if update is None or update.skipped is not None or not update.trajectory_ids:
            skipped += 1
            continue
        groups = asked.reader.groups(step)
        told: Mapping[str, Any] = {"arguments": {**given, "learning_rate": update.lr}, "loss": update.loss}
        for row in rows_of(update, _samples(asked, update, groups), groups, options=replace(options, lr=update.lr)):
            pruned = pruned or row["old_per_token_logps"] is None
            out.line({**row, "config": told})
            count += 1
    if not count:
        raise UserError(
            f"run `{asked.name}` changed no weights in {_which(asked)}", hint=f"see why: selfplay inspect {asked.name}"
        )
    return Made(count=count, left_out=skipped, notes=tuple(_notes(options, skipped=skipped, pruned=pruned)))


def _which(asked: Asked) -> str:
    return f"step {asked.step}" if asked.step is not None else "its closed steps"


def _notes(options: Options, *, skipped: int, pruned: bool) -> list[str]:
    notes = []
    if skipped:
        notes.append("what was left out are steps that changed no weights")
    if options.kl_coef:
        notes.append("the divergence from the reference is not in the rows: the loss is the learner's without it")
    if pruned:
        notes.append("some log-probabilities were pruned: where `old_per_token_logps` is null, TRL takes its own")
    return notes


TRL = Simple(
    about="the samples of updates, so that TRL's GRPOTrainer has the same loss",
    noun="sample",
    shape="lines",
    takes=ONLY_STEP,
    writer=_write,
)
