"""One-token attention over a table of rows, and the key/value cache it reads: both bitwise batch-invariant.

Attention is matmul, float32 softmax under a mask, matmul. On CPU a row's result then depends neither on
the other rows nor on how far the keys are padded, which `scaled_dot_product_attention` does not give
(float32 changes with the batch, bfloat16 with the padding). The function is registered with transformers
under `NAME` and is active only inside `decoding`, so that the learner keeps the model's own attention.

Not here: prefill (a plain forward of one prompt), sampling, what a row is for (`engine`). Attention with
sinks, position biases or recurrent state is refused, and mixtures of experts (`check_model`).

A step may have more rows than keys are kept for (`rows`): the last ones only fill it up, and attend to nothing.

Shapes: B rows, R of them with keys, H query heads, K key/value heads, G = H / K, T key capacity, D head width.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from selfplay.errors import UserError
from selfplay.policy.rows import ROW_TILE

NAME = "selfplay_decode"
TILE = 64
"""Key capacity grows in tiles: kernels are chosen by size, and these sizes were all found to agree."""
_CHUNK = 128
"""Longest sum over keys in float32: from 256 keys on the library splits sums by their length."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""What the families of mixtures call their number of experts."""

Tables = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, [rows, K, T, D] each."""

_active = threading.local()


@dataclass(slots=True)
class Step:
    """Where the tokens of one decoding step stand."""

    positions_R: torch.Tensor
    """Position of each row that has keys, the first ones: its key is written there, and keys up to there are seen."""
    capacity: int
    """T of the cache."""
    _masks: dict[int, torch.Tensor] = field(default_factory=dict)
    _slots: dict[int, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int) -> torch.Tensor:
        """[R, 1, 1, T] float32: 0 where a key is seen, -inf elsewhere; `window` 0 means no sliding window."""
        if window not in self._masks:
            keys_T = torch.arange(self.capacity, device=self.positions_R.device)
            seen_RT = keys_T <= self.positions_R[:, None]
            if window:
                seen_RT &= keys_T > self.positions_R[:, None] - window
            mask_RT = torch.zeros(seen_RT.shape, device=seen_RT.device).masked_fill_(~seen_RT, -torch.inf)
            self._masks[window] = mask_RT[:, None, None, :]
        return self._masks[window]

    def slots(self, heads: int) -> torch.Tensor:
        """[R * K] index of each row's and head's key in the cache seen as [rows * K * T, D]."""
        if heads not in self._slots:
            device = self.positions_R.device
            lanes = torch.arange(len(self.positions_R) * heads, device=device)
            self._slots[heads] = lanes * self.capacity + self.positions_R.repeat_interleave(heads)
        return self._slots[heads]


def decode_attention(
    module: torch.nn.Module,
    query_BH1D: torch.Tensor,
    key_RKTD: torch.Tensor,
    value_RKTD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **extra: object,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface for one query a row; the mask is that of the active step.

    Raises:
        UserError: the model hands over attention sinks or a position bias.
    """
    if extra.get("s_aux") is not None or extra.get("position_bias") is not None:
        raise _unsupported("attention sinks or position biases")
    step: Step = _active.step
    total, heads, _, width = query_BH1D.shape
    rows, kv_heads = key_RKTD.shape[:2]
    query_RKGD = query_BH1D[:rows].reshape(rows, kv_heads, heads // kv_heads, width).to(key_RKTD.dtype)
    scores_RKGT = torch.matmul(query_RKGD, key_RKTD.transpose(2, 3))
    scale = width**-0.5 if scaling is None else scaling
    mask_R11T = step.mask(sliding_window or 0)
    if softcap is None:
        # the sum promotes to float32 by itself, and scales in the same pass
        scores_RKGT = torch.add(mask_R11T, scores_RKGT, alpha=scale)
    else:
        scores_RKGT = torch.tanh(scores_RKGT.float() * scale / softcap) * softcap + mask_R11T
    share_RKGT = torch.softmax(scores_RKGT, dim=-1).to(value_RKTD.dtype)
    mixed_RKGD = _mix(share_RKGT, value_RKTD)
    mixed_R1HD = mixed_RKGD.reshape(rows, 1, heads, value_RKTD.shape[-1])
    if total == rows:
        return mixed_R1HD, None
    return torch.cat([mixed_R1HD, mixed_R1HD.new_zeros(total - rows, *mixed_R1HD.shape[1:])]), None


def _mix(share_RKGT: torch.Tensor, value_RKTD: torch.Tensor) -> torch.Tensor:
    """share @ value, summed over keys in an order that does not depend on T."""
    capacity = value_RKTD.shape[2]
    if value_RKTD.dtype != torch.float32 or capacity <= _CHUNK:
        return torch.matmul(share_RKGT, value_RKTD)
    mixed = torch.matmul(share_RKGT[..., :_CHUNK], value_RKTD[:, :, :_CHUNK])
    for start in range(_CHUNK, capacity, _CHUNK):
        mixed += torch.matmul(share_RKGT[..., start : start + _CHUNK], value_RKTD[:, :, start : start + _CHUNK])
    return mixed


class RowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's keys and values, [rows, K, T, D] each, contiguous."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tables = tables
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the tables exist before the first forward."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new key and value of the first R rows at their positions; returns the whole tables of those."""
        rows = len(_active.step.positions_R)
        slots = _active.step.slots(key_states.shape[1])
        keys, values = self.tables
        for table, states in ((keys, key_states), (values, value_states)):
            width = states.shape[-1]
            table.view(-1, width).index_copy_(0, slots, states[:rows].reshape(-1, width).to(table.dtype))
        return keys[:rows], values[:rows]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(T, 0): every key is handed over, the step's mask hides the rest."""
        return self.tables[0].shape[2], 0

    def get_seq_length(self) -> int:
        """T; rows have lengths of their own, which `Step` knows."""
        return self.tables[0].shape[2]

    def get_max_length(self) -> int:
        """T, until `RowCache` grows."""
        return self.tables[0].shape[2]


class RowCache(Cache):
    """Keys and values of the rows in flight; grows and shrinks by whole tiles and stays contiguous.

    Contiguous tables matter: the bfloat16 matmul of a narrowed view costs five times as much.
    """

    def __init__(self, prompt: Sequence[Tables], *, limit: int) -> None:
        """Tables of the shapes of `prompt`'s, for no rows yet.

        `limit` is for `rows` times `capacity`, in tokens: what exceeds it is what is needed, never what is kept for
        later.
        """
        self.rows = self.capacity = 0
        self._limit = limit
        empty = [tuple(t.new_zeros(0, t.shape[1], 0, t.shape[3]) for t in tables) for tables in prompt]
        self._own = [RowLayer((keys, values)) for keys, values in empty]
        super().__init__(layers=list(self._own))

    def resize(self, rows: int, *, length: int) -> None:
        """Make room for `rows` rows of `length` keys, in whole tiles.

        Below the limit rows are made in powers of two, and memory is given back only when half of the keys, or less
        than a quarter of the rows, would do: what comes and goes moves nothing.
        """
        least, need = tiled(rows, ROW_TILE), tiled(length, TILE)
        if self.capacity // 2 < need <= self.capacity and least * self.capacity <= self._limit:
            need = self.capacity
        roomy = self.rows // 4 <= least <= self.rows
        wanted = self.rows if roomy else 1 << (least - 1).bit_length()
        need_rows = max(least, min(wanted, self._limit // need // ROW_TILE * ROW_TILE))
        if (need_rows, need) == (self.rows, self.capacity):
            return
        kept = min(rows, self.rows), min(need, self.capacity)
        for layer in self._own:
            keys, values = layer.tables
            # one after the other, so that only one table exists twice
            layer.tables = (_resized(keys, rows=need_rows, capacity=need, kept=kept), values)
            del keys
            layer.tables = (layer.tables[0], _resized(values, rows=need_rows, capacity=need, kept=kept))
        self.rows, self.capacity = need_rows, need

    def place(self, piece: Sequence[Tables], *, row: int, start: int = 0) -> None:
        """Copy a prompt's keys and values from position `start` on, [1, K, P, D] each, to `row`."""
        for layer, prefilled in zip(self._own, piece, strict=True):
            for table, states in zip(layer.tables, prefilled, strict=True):
                table[row, :, start : start + states.shape[2]] = states[0]

    def move(self, source: int, *, target: int, length: int) -> None:
        """Copy the first `length` keys and values of one row over another."""
        for layer in self._own:
            for table in layer.tables:
                table[target, :, :length] = table[source, :, :length]


def tiled(count: int, tile: int) -> int:
    """`count` rounded up to a multiple of `tile`."""
    return -(-count // tile) * tile


def tables_of(cache: DynamicCache) -> list[Tables]:
    """A prefilled prompt's keys and values, layer by layer."""
    layers: Any = cache.layers
    return [(layer.keys, layer.values) for layer in layers]


def _resized(table: torch.Tensor, *, rows: int, capacity: int, kept: tuple[int, int]) -> torch.Tensor:
    # zeros, not empty: a masked key still enters a product, and 0 * NaN is NaN
    fresh = table.new_zeros(rows, table.shape[1], capacity, table.shape[3])
    fresh[: kept[0], :, : kept[1]] = table[: kept[0], :, : kept[1]]
    return fresh


@contextmanager
def decoding(model: Any, step: Step) -> Iterator[None]:
    """Inside, `model` attends by `decode_attention` at `step`; outside it is as it was."""
    before = model.config._attn_implementation
    _active.step = step
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
        _active.step = None


def check_model(model: Any) -> None:
    """Refuse a model that the decoding attention cannot serve.

    Raises:
        UserError: the model keeps recurrent state, has experts, or does not take its attention from transformers'
            interface.
    """
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if strange := kinds - {"full_attention", "sliding_attention"}:
        raise _unsupported(f"layers of type {', '.join(sorted(strange))}")
    if any(getattr(model.config.get_text_config(), name, None) for name in EXPERTS):
        raise _unsupported("a mixture of experts, whose sums depend on what else is in the batch")
    if not model._supports_attention_backend:
        raise _unsupported("an attention of its own")


def _unsupported(what: str) -> UserError:
    return UserError(
        f"policy `local` cannot sample this model: it has {what}",
        hint="name a dense decoder, such as -s policy.model=smollm2-135m",
    )


AttentionInterface.register(NAME, decode_attention)
