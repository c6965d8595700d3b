"""One pass over a batch: the gradient of every micro-batch of its partition, and what was seen of each sample.

A learner of several ranks makes the pass together: each takes its turns, and what all of them found is joined. Not
here: the step that follows (`master`, `ranks_shards`), what the loss is (`objective`, `grpo`).

Shapes: B samples of a micro-batch, T trained tokens of the longest, N trained tokens of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selfplay.errors import RunFailed
from selfplay.learner import grpo
from selfplay.learner.batch import Row, advantages_of, pack
from selfplay.learner.master import Master
from selfplay.learner.memory import Room
from selfplay.learner.objective import Work
from selfplay.learner.ranks_shards import Sharded
from selfplay.learner.ranks_world import Apart, World, alone
from selfplay.learner.roles import Meter
from selfplay.learner.tally import Seen
from selfplay.types import Sample


def collect(
    work: Work, weights: Master | Sharded, *, room: Room, world: World | None = None
) -> tuple[float, dict[int, Seen], Meter]:
    """Collect the gradient of `work`, micro-batch by micro-batch: its loss, what was seen, the roles' norms.

    Raises:
        RunFailed: the loss is not finite; the gradient is forgotten.
        Apart: something else failed on this rank of several.
    """
    turns = alone(work.parts) if world is None else world.turns(work.samples, work.parts)
    losses: dict[int, float] = {}
    seen: dict[int, Seen] = {}
    total = None if world is None else world.total
    meter = Meter(weights.gradients, samples=work.samples, parts=work.parts, total=total)
    try:
        for turn in turns:
            part = work.parts[turn.part]
            own = work if turn.counts else replace(work, weights=dict.fromkeys(part, 0.0))
            if isinstance(weights, Master):
                weights.speak_as(work.samples[part[0]].role)
            loss, found = _micro_batch(own, pack(work.samples, part), weights, room=room)
            if turn.counts:
                losses[turn.part] = loss
                seen |= found
            if turn.ends is not None:
                if isinstance(weights, Sharded):
                    weights.collect()
                meter.after(turn.ends)
        if world is not None:
            losses, seen = world.joined(work.samples, work.parts, losses, seen)
    except BaseException as error:
        # An interrupt or a failure between two micro-batches must not leave half a gradient behind.
        weights.zero_gradients()
        if world is not None and isinstance(error, Exception):
            raise Apart from error
        raise
    loss = math.fsum(losses[part] for part in sorted(losses))
    if not math.isfinite(loss):
        weights.zero_gradients()
        _require_finite(loss)
    return loss, seen, meter


def _require_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise RunFailed(f"the loss is not finite ({loss}); the weights are unchanged")


def _advantages(samples: Sequence[Sample], *, device: torch.device) -> Tensor:
    """One a sample, (B,); one a trained token, (B, T), where some of them have several."""
    if not any(sample.token_advantages for sample in samples):
        return torch.tensor([sample.advantage for sample in samples], device=device)
    each = [torch.tensor(advantages_of(sample), device=device) for sample in samples]
    return pad_sequence(each, batch_first=True)


def _micro_batch(work: Work, row: Row, weights: Master | Sharded, *, room: Room) -> tuple[float, dict[int, Seen]]:
    scores = weights.score(row, temperature=work.temperature, recompute=room.tight(row))
    device = scores.logprob_N.device
    logprobs = _split(scores.logprob_N, row)
    old = [lp.detach() for lp in logprobs] if work.old is None else [work.old[m] for m in row.members]
    length_B = torch.tensor(row.lengths, device=device)
    tokens = grpo.Tokens(
        logprobs_BT=pad_sequence(logprobs, batch_first=True),
        old_BT=pad_sequence(old, batch_first=True),
        mask_BT=torch.arange(max(row.lengths), device=device)[None, :] < length_B[:, None],
        advantage_B=_advantages([work.samples[member] for member in row.members], device=device),
    )
    loss_BT = work.objective(row, tokens)
    weight_B = torch.tensor([work.weights[member] for member in row.members], device=device)
    loss = grpo.total(loss_BT, mask_BT=tokens.mask_BT, weight_B=weight_B)
    found = loss.item()
    if isinstance(weights, Master):
        # note: before the backward pass, which other ranks would wait in.
        _require_finite(found)
    loss.backward()  # type: ignore[no-untyped-call]
    # note: what is told of an update is counted on the processor; a card is asked once a micro-batch.
    told = [torch.cat(logprobs).detach(), torch.cat(old), scores.entropy_N, loss_BT.detach()[tokens.mask_BT]]
    each = torch.stack(told).cpu().split_with_sizes(list(row.lengths), 1)
    seen = {
        member: Seen(logprob_T=own[0], old_T=own[1], entropy_T=own[2], loss_T=own[3])
        for member, own in zip(row.members, each, strict=True)
    }
    return found, seen


def _split(values_N: Tensor, row: Row) -> list[Tensor]:
    """The values of each member of `row`."""
    return list(values_N.split_with_sizes(list(row.lengths)))
