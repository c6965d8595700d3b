"""Rows hold every token once, see nothing they should not, and cuts do not depend on chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfplay.errors import UserError
from selfplay.learner.batch import BLOCK_TOKENS, MERGED_TOKENS, Bundle, Row, num_context, num_trained, pack, partition
from selfplay.types import Sample


def sample(name: str, prompt: tuple[int, ...], *replies: tuple[tuple[int, ...], bool]) -> Sample:
    ids, trained = prompt, (False,) * len(prompt)
    for reply, carries_loss in replies:
        ids += reply
        trained += (carries_loss,) * len(reply)
    return Sample(
        trajectory_id=name,
        role="solver",
        group_id="g",
        token_ids=ids,
        trained=trained,
        sampler_logprobs=(0.0,) * len(ids),
        advantage=1.0,
    )


@dataclass(frozen=True)
class Shape:
    """Lengths of one sample: its prompt, and its turns, of which every other one is trained."""

    prompt: int
    kind: int
    """Samples of one kind and prompt length share the prompt."""
    turns: tuple[int, ...]


LENGTHS = st.integers(1, 2 * MERGED_TOKENS)
SHAPES = st.lists(
    st.builds(
        Shape,
        prompt=st.sampled_from([1, 2, 30, BLOCK_TOKENS + 5]),
        kind=st.integers(0, 1),
        turns=st.one_of(st.tuples(LENGTHS), st.tuples(LENGTHS, LENGTHS, LENGTHS)),
    ),
    min_size=1,
    max_size=6,
)


def samples_of(shapes: Sequence[Shape]) -> list[Sample]:
    return [
        sample(
            f"t{number}",
            (100 + shape.kind,) * shape.prompt,
            *((tuple(range(number, number + length)), turn % 2 == 0) for turn, length in enumerate(shape.turns)),
        )
        for number, shape in enumerate(shapes)
    ]


def seen_by(row: Row) -> list[tuple[int, ...]]:
    """For each token of the row, the tokens it may look at, as places in the row."""
    found: list[tuple[int, ...]] = []
    for bundle in row.bundles:
        start = len(found)
        for block in bundle.blocks:
            assert start + block.start == len(found)
            own_start = block.start
            for length in block.lengths:
                first = block.first_key if len(block.lengths) == 1 else own_start
                for query in range(own_start, own_start + length):
                    keys = {*range(block.num_context), *range(first, query + 1)}
                    found.append(tuple(start + key for key in sorted(keys)))
                own_start += length
        assert len(found) == start + bundle.num_tokens
    return found


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_every_trained_token_is_predicted_from_exactly_its_own_past(shapes: list[Shape]) -> None:
    samples = samples_of(shapes)
    row = pack(samples, range(len(samples)))
    seen = seen_by(row)
    assert sorted(row.members) == list(range(len(samples)))
    place = 0
    for member, length in zip(row.members, row.lengths, strict=True):
        one = samples[member]
        trained = [t for t, carries_loss in enumerate(one.trained) if carries_loss]
        assert length == len(trained) == num_trained(one)
        for t in trained:
            past = seen[row.sources[place]]
            assert row.targets[place] == one.token_ids[t]
            assert tuple(row.token_ids[i] for i in past) == one.token_ids[:t]
            assert tuple(row.positions[i] for i in past) == tuple(range(t))
            place += 1


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 800))
def test_a_partition_covers_each_member_once_within_the_budget(shapes: list[Shape], budget: int) -> None:
    samples = samples_of(shapes)
    parts = partition(samples, range(len(samples)), token_budget=budget)
    assert sorted(member for part in parts for member in part) == list(range(len(samples)))
    assert parts == partition(samples, range(len(samples)), token_budget=budget)
    for part in parts:
        assert len(part) == 1 or len(pack(samples, part).token_ids) <= budget


def test_a_shared_prompt_stands_once() -> None:
    samples = [sample(f"t{i}", (5, 6, 7), ((10 + i, 1), True)) for i in range(8)]
    row = pack(samples, range(8))
    assert row.token_ids == (5, 6, 7, *range(10, 18))
    assert row.positions == (0, 1, 2, *([3] * 8))
    assert row.sources[:4] == (2, 3, 2, 4)


def test_a_reply_of_one_token_needs_no_token_of_its_own() -> None:
    row = pack([sample("t", (5, 6), ((1,), True))], [0])
    assert row.token_ids == (5, 6)
    assert row.sources == (1,)
    assert row.bundles == (Bundle(num_tokens=2, blocks=row.bundles[0].blocks),)


def test_tokens_after_the_last_trained_one_are_not_computed() -> None:
    row = pack([sample("t", (5, 6), ((7, 8), True), ((9, 9, 9), False))], [0])
    assert row.token_ids == (5, 6, 7)


def test_a_long_bundle_is_cut_and_its_prompt_repeated() -> None:
    samples = [sample(f"t{i}", (5,) * 50, ((7,) * 26, True)) for i in range(4)]
    assert partition(samples, range(4), token_budget=100) == ((0, 1), (2, 3))


@pytest.mark.parametrize("one", [sample("t", (5, 6)), sample("t", (), ((7, 8), True))])
def test_a_sample_without_prompt_or_reply_is_refused(one: Sample) -> None:
    with pytest.raises(UserError, match="sample t has no trained token behind a prompt"):
        num_context(one)
