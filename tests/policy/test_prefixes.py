"""What was prefilled for one prompt serves the next one that begins alike, and nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from selfplay.policy import Request, prefixes
from selfplay.policy.engine import Engine, Row
from selfplay.policy.prefixes import Prefixes
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.types import Sampling

TOKENIZER = CharTokenizer()
PIECE = 16
Tiny = Callable[[str, torch.dtype], PreTrainedModel]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "PIECE", PIECE)


def prompt(length: int, *, seed: int = 0) -> tuple[int, ...]:
    """Random ids."""
    rng = random.Random(seed)
    return tuple(rng.randrange(2, len(TOKENIZER)) for _ in range(length))


def engine(model: PreTrainedModel) -> Engine:
    """Room for eight rows."""
    return Engine(model, TOKENIZER, max_rows=8, kv_tokens=4096)


def play(engine: Engine, prompt_ids: tuple[int, ...], *, seed: int = 0, tokens: int = 7, version: int = 0) -> Row:
    """One whole reply."""
    request = Request(prompt_ids=prompt_ids, sampling=Sampling(max_tokens=tokens), seed=seed)
    row = Row(request=request, context=512)
    engine.admit([row], version=version)
    while engine.rows:
        engine.step()
    return row


def lengths_of(model: PreTrainedModel) -> list[int]:
    """Tokens of each forward to come."""
    lengths: list[int] = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["inputs_embeds"].shape[1]), with_kwargs=True
    )
    return lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_conversation_is_the_same_whether_its_turns_are_remembered(
    family: str, dtype: torch.dtype, tiny: Tiny
) -> None:
    model = tiny(family, dtype)
    remembers, ids = engine(model), prompt(21)
    for turn in range(4):
        kept = play(remembers, ids, seed=turn)
        fresh = play(engine(model), ids, seed=turn)
        assert (kept.token_ids, kept.logprobs, kept.stop) == (fresh.token_ids, fresh.logprobs, fresh.stop)
        ids += (*kept.token_ids, *prompt(5 + 9 * turn, seed=turn))
    assert len(ids) > 5 * PIECE


@pytest.mark.parametrize("length", [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
def test_a_prompt_in_pieces_is_the_prompt(length: int, tiny: Tiny) -> None:
    model, ids = tiny("gemma3", torch.float32), prompt(length)
    pieces = Prefixes(model, tokens=512).prefill(ids)
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[:, -1]
    assert [piece.start for piece in pieces] == list(range(0, length, PIECE))
    assert sum(piece.num_tokens for piece in pieces) == length
    assert torch.allclose(pieces[-1].logits_1V, wanted, atol=2e-5)


def test_a_turn_prefills_what_follows_the_last_whole_piece() -> None:
    model, _ = toy_model(0)
    lengths = lengths_of(model)
    first = prompt(2 * PIECE + 6)
    kept = Prefixes(model, tokens=512)
    kept.prefill(first)
    assert lengths == [PIECE, PIECE, 6]
    kept.prefill(first + prompt(20, seed=1))
    assert lengths[3:] == [PIECE, 10]
    kept.prefill(first)
    assert len(lengths) == 5
    other = first[:PIECE] + prompt(3, seed=2)
    kept.prefill(other)
    assert lengths[5:] == [3]


def test_nothing_is_kept_between_weights() -> None:
    model, _ = toy_model(0)
    other, _ = toy_model(1)
    ids, kept = prompt(2 * PIECE + 3), engine(model)
    before = play(kept, ids, tokens=20)
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            mine.copy_(theirs)
    after = play(kept, ids, tokens=20, version=1)
    fresh = play(engine(other), ids, tokens=20)
    assert (after.token_ids, after.logprobs) == (fresh.token_ids, fresh.logprobs)
    assert after.logprobs != before.logprobs


def test_the_prompt_used_least_lately_is_forgotten_first_and_the_last_one_never() -> None:
    model, _ = toy_model(0)
    lengths = lengths_of(model)
    kept = Prefixes(model, tokens=4 * PIECE)
    old, new = prompt(2 * PIECE, seed=1), prompt(2 * PIECE, seed=2)
    kept.prefill(old)
    kept.prefill(new)
    kept.prefill(old)
    kept.prefill(prompt(PIECE, seed=3))
    assert lengths == [PIECE] * 5
    kept.prefill(old)
    assert len(lengths) == 5
    # the end of `new` is gone, its beginning is not: what others may stand on goes last
    kept.prefill(new)
    assert len(lengths) == 6
    long = prompt(9 * PIECE, seed=4)
    kept.prefill(long)
    del lengths[:]
    kept.prefill(long)
    assert lengths == []
    kept.prefill(old)
    assert lengths == [PIECE, PIECE]
    kept.clear()
    kept.prefill(old)
    assert lengths == [PIECE] * 4
