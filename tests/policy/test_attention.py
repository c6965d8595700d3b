"""Decoding attention: right, batch-invariant, and gone once the step is over."""

from __future__ import annotations

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from selfplay.errors import UserError
from selfplay.policy.attention import ROW_TILE, TILE, RowCache, Step, check_model, decode_attention, decoding
from selfplay.policy.toy import toy_model

MODULE = torch.nn.Module()


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, cap: float | None) -> object:
    """Attention of one query over `key`, written out in float64."""
    query, key, value = query.double(), key.double(), value.double()
    groups = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
    scores = (key @ query[:, :, None])[..., 0] * scale
    if cap:
        scores = torch.tanh(scores / cap) * cap
    return (torch.softmax(scores, -1)[:, None] @ value)[:, 0]


@pytest.mark.parametrize(("window", "cap"), [(None, None), (9, None), (None, 2.0)])
def test_agrees_with_attention_written_out(window: int | None, cap: float | None) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(5, 6, 1, 16), torch.randn(5, 2, 192, 16), torch.randn(5, 2, 192, 16)
    positions = torch.tensor([0, 3, 60, 130, 191])
    model, _ = toy_model(0)
    with decoding(model, Step(positions_R=positions, capacity=192)):
        mixed, _ = decode_attention(MODULE, query, key, value, None, scaling=0.3, sliding_window=window, softcap=cap)
    for row, position in enumerate(positions.tolist()):
        first = max(0, position + 1 - (window or 999))
        seen = slice(first, position + 1)
        wanted = reference(query[row, :, 0], key[row, :, seen], value[row, :, seen], 0.3, cap)
        torch.testing.assert_close(mixed[row, 0].double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "groups", "width"), [(3, 3, 64), (2, 2, 16), (1, 4, 32)])
def test_bits_depend_on_neither_batch_nor_padding(dtype: torch.dtype, kv_heads: int, groups: int, width: int) -> None:
    torch.manual_seed(1)
    key = torch.randn(16, kv_heads, 320, width).to(dtype)
    value = torch.randn_like(key)
    query = torch.randn(16, kv_heads * groups, 1, width).to(dtype)
    model, _ = toy_model(0)
    for length in (1, 63, 64, 150, 250):
        seen: list[torch.Tensor] = []
        for rows in (ROW_TILE, 12, 16):
            for capacity in (64, 128, 256, 320):
                if capacity < length:
                    continue
                positions = torch.full((rows,), capacity - 1)
                positions[2] = length - 1
                tables = key[:rows, :, :capacity].contiguous(), value[:rows, :, :capacity].contiguous()
                with decoding(model, Step(positions_R=positions, capacity=capacity)):
                    seen.append(decode_attention(MODULE, query[:rows], *tables, None)[0][2])
        assert all(torch.equal(seen[0], other) for other in seen), length


def test_the_model_is_as_it_was_after_the_step_and_after_an_error() -> None:
    model, _ = toy_model(0)
    before = model.config._attn_implementation
    step = Step(positions_R=torch.zeros(4).long(), capacity=TILE)
    with decoding(model, step):
        assert model.config._attn_implementation != before
    assert model.config._attn_implementation == before
    with pytest.raises(IndexError), decoding(model, step):
        model(torch.tensor([[10_000]]))
    assert model.config._attn_implementation == before


def test_sinks_are_refused() -> None:
    with pytest.raises(UserError, match="sinks"):
        decode_attention(MODULE, *(torch.zeros(4, 1, 1, 8),) * 3, None, s_aux=torch.zeros(1))


def test_models_with_recurrent_state_are_refused() -> None:
    config = MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=20, state_size=4, pad_token_id=0)
    with pytest.raises(UserError, match="cannot sample this model"):
        check_model(MambaForCausalLM(config))
    check_model(toy_model(0)[0])


def test_the_cache_keeps_rows_while_it_grows_shrinks_and_moves() -> None:
    torch.manual_seed(2)
    prompts = [[(torch.randn(1, 2, n, 8), torch.randn(1, 2, n, 4))] for n in (3, 70, 5)]
    cache = RowCache(prompts[0], limit=4096)
    for row, prompt in enumerate(prompts):
        cache.resize(row + 1, length=71)
        cache.place(prompt, row=row)
    cache.resize(3, length=300)
    assert (cache.rows, cache.capacity) == (ROW_TILE, 320)
    cache.move(2, target=0, length=5)
    cache.resize(2, length=71)
    assert cache.capacity == 128
    keys, values = cache.layers[0].tables
    assert torch.equal(keys[0, :, :5], prompts[2][0][0][0])
    assert torch.equal(values[1, :, :70], prompts[1][0][1][0])
    assert keys.is_contiguous()
    assert values.is_contiguous()


def empty(limit: int) -> RowCache:
    return RowCache([(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))], limit=limit)


def test_what_is_kept_for_later_stays_within_the_limit() -> None:
    cache = empty(4096)
    cache.resize(64, length=8)
    assert (cache.rows, cache.capacity) == (64, 64)
    cache.resize(16, length=230)
    assert (cache.rows, cache.capacity) == (16, 256), "not 64 rows, though a quarter of them is in use"
    cache.resize(4, length=960)
    assert (cache.rows, cache.capacity) == (4, 960)
    cache.resize(8, length=490)
    assert (cache.rows, cache.capacity) == (8, 512), "not 960 keys, though half of them are in use"
    cache = empty(4096)
    cache.resize(17, length=150)
    assert (cache.rows, cache.capacity) == (20, 192), "not 32 rows, the next power of two"
    cache.resize(1, length=2000)
    assert (cache.rows, cache.capacity) == (ROW_TILE, 2048), "what is needed is given"


def test_below_the_limit_rows_that_come_and_go_move_nothing() -> None:
    cache = empty(16 * 256)
    cache.resize(9, length=200)
    assert (cache.rows, cache.capacity) == (16, 256)
    before = cache.layers[0].tables[0]
    for rows, length in ((16, 256), (4, 129), (12, 200)):
        cache.resize(rows, length=length)
        assert cache.layers[0].tables[0] is before
    cache.resize(4, length=128)
    assert (cache.rows, cache.capacity) == (16, 128)
