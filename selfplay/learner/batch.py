"""Ragged samples to micro-batches: one row of tokens each, without padding.

Samples that start with the same prompt (the tokens before the first trained one) form a *bundle*: the
prompt stands in the row once, followed by what each sample adds to it. `Block`s say which tokens may
look at which; positions go on from the prompt's end for every sample. So no prompt is computed twice,
no padding is computed at all, and a token sees exactly what it would see alone.

Not here: the model (`forward`), what a token's loss is (`grpo`).

Terms: a *row* is the tokens of one micro-batch; a *context* is the part of a bundle that all its
samples share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from selfplay.errors import UserError
from selfplay.types import Sample, record

BLOCK_TOKENS = 256
"""Longest run of queries that attends at once: bounds the scores held and the share of them masked out."""

MERGED_TOKENS = 128
"""Short replies attend together up to this many queries: fewer, larger products against the shared prompt."""


@record
class Block:
    """Queries of one bundle that attend at once; offsets are relative to the bundle's start.

    They see the first `num_context` tokens of the bundle, and [`first_key`, `stop`) causally, but only
    tokens of their own sample: `lengths` are the consecutive samples in [`start`, `stop`).
    """

    start: int
    stop: int
    num_context: int
    first_key: int
    """At most `start`. Where it is less, the block continues one long sample."""
    lengths: tuple[int, ...]


@record
class Bundle:
    """Samples behind one prompt, laid out in consecutive tokens of a row."""

    num_tokens: int
    blocks: tuple[Block, ...]


@record
class Row:
    """One micro-batch."""

    members: tuple[int, ...]
    """Positions of its samples in the batch, in the order of `targets`."""
    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    """Of each token in its sample."""
    bundles: tuple[Bundle, ...]
    sources: tuple[int, ...]
    """For each trained token: where in the row the token before it stands."""
    targets: tuple[int, ...]
    """For each trained token: its id."""
    lengths: tuple[int, ...]
    """Trained tokens of each member; `sources` and `targets` are these, concatenated."""


def num_context(sample: Sample) -> int:
    """Tokens before the first trained one.

    Raises:
        UserError: nothing is trained, or the first token is, which nothing predicts.
    """
    if True not in sample.trained or sample.trained[0]:
        raise UserError(f"sample {sample.trajectory_id} has no trained token behind a prompt")
    return sample.trained.index(True)


def num_trained(sample: Sample) -> int:
    """How many tokens carry loss."""
    return sum(sample.trained)


def advantages_of(sample: Sample) -> tuple[float, ...]:
    """One a trained token."""
    return sample.token_advantages or (sample.advantage,) * num_trained(sample)


def informative(samples: Sequence[Sample]) -> list[int]:
    """Positions of the samples with trained tokens whose group has an advantage other than 0."""
    groups = {sample.group_id for sample in samples if sample.advantage != 0.0 or any(sample.token_advantages)}
    return [i for i, sample in enumerate(samples) if sample.group_id in groups and num_trained(sample)]


def _num_inputs(sample: Sample) -> int:
    """Tokens that predict something: all up to the one before the last trained token."""
    return len(sample.trained) - 1 - sample.trained[::-1].index(True)


def _bundles(samples: Sequence[Sample], members: Iterable[int]) -> list[list[int]]:
    """Members by equal prompt, in order of first appearance."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for member in members:
        sample = samples[member]
        by_prompt.setdefault(sample.token_ids[: num_context(sample)], []).append(member)
    return list(by_prompt.values())


def partition(samples: Sequence[Sample], members: Iterable[int], *, token_budget: int) -> tuple[tuple[int, ...], ...]:
    """Micro-batches of at most `token_budget` tokens each, as positions in `samples`.

    Bundles are sorted by length and put, longest first, into the first micro-batch with room
    (first-fit decreasing). A bundle longer than the budget is cut, and its prompt repeated; a single
    sample longer than the budget stands alone. The result depends on nothing but the arguments.
    """
    pieces: list[tuple[int, list[int]]] = []
    for bundle in _bundles(samples, members):
        context = num_context(samples[bundle[0]])
        size, piece = context, list[int]()
        for member in bundle:
            extra = _num_inputs(samples[member]) - context
            if piece and size + extra > token_budget:
                pieces.append((size, piece))
                size, piece = context, []
            size += extra
            piece.append(member)
        pieces.append((size, piece))
    pieces.sort(key=lambda piece: (-piece[0], piece[1][0]))
    rooms: list[int] = []
    parts: list[list[int]] = []
    for size, piece in pieces:
        place = next((i for i, room in enumerate(rooms) if size <= room), None)
        if place is None:
            rooms.append(token_budget - size)
            parts.append(piece)
        else:
            rooms[place] -= size
            parts[place] += piece
    return tuple(tuple(part) for part in parts)


def pack(samples: Sequence[Sample], members: Iterable[int]) -> Row:
    """The row of one micro-batch: `members` are positions in `samples`."""
    order: list[int] = []
    ids: list[int] = []
    positions: list[int] = []
    bundles: list[Bundle] = []
    sources: list[int] = []
    targets: list[int] = []
    lengths: list[int] = []
    for bundle in _bundles(samples, members):
        first = samples[bundle[0]]
        start, context = len(ids), num_context(first)
        ids += first.token_ids[:context]
        positions += range(context)
        extras: list[int] = []
        for member in bundle:
            sample, inputs = samples[member], _num_inputs(samples[member])
            shift = len(ids) - context
            ids += sample.token_ids[context:inputs]
            positions += range(context, inputs)
            extras.append(inputs - context)
            trained = [t for t, carries_loss in enumerate(sample.trained) if carries_loss]
            sources += [start + t - 1 if t == context else shift + t - 1 for t in trained]
            targets += [sample.token_ids[t] for t in trained]
            lengths.append(len(trained))
        order += bundle
        bundles.append(Bundle(num_tokens=len(ids) - start, blocks=_blocks(context, extras)))
    return Row(
        members=tuple(order),
        token_ids=tuple(ids),
        positions=tuple(positions),
        bundles=tuple(bundles),
        sources=tuple(sources),
        targets=tuple(targets),
        lengths=tuple(lengths),
    )


def _blocks(context: int, extras: Sequence[int]) -> tuple[Block, ...]:
    """Blocks of a bundle whose samples add `extras` tokens to a prompt of `context` tokens."""
    blocks = _long(0, context, num_context=0)
    offset = context
    merged: list[int] = []

    def close() -> None:
        if merged:
            start = offset - sum(merged)
            blocks.append(Block(start=start, stop=offset, num_context=context, first_key=start, lengths=tuple(merged)))
            merged.clear()

    for extra in extras:
        if extra > MERGED_TOKENS:
            close()
            blocks += _long(offset, offset + extra, num_context=context)
        elif extra:
            if sum(merged) + extra > MERGED_TOKENS:
                close()
            merged.append(extra)
        offset += extra
    close()
    return tuple(blocks)


def _long(start: int, stop: int, *, num_context: int) -> list[Block]:
    """Blocks of one run of tokens that attends causally to itself."""
    return [
        Block(
            start=at,
            stop=min(at + BLOCK_TOKENS, stop),
            num_context=num_context,
            first_key=start,
            lengths=(min(at + BLOCK_TOKENS, stop) - at,),
        )
        for at in range(start, stop, BLOCK_TOKENS)
    ]
