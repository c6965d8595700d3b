"""How much memory an update needs, from a model's configuration and the layout of a micro-batch. Pure.

What is counted: float32 parameters, their copy in the compute type, gradients, moments, a frozen reference; what
the backward pass keeps of one micro-batch (`kept_bytes`), with and without layers computed again; the
probabilities of the trained tokens; the caches of the samplers; and what Python and its libraries take before any of
it (`FLOOR_MB`). The counts per layer are of the tensors that autograd saves in Llama's, Qwen's and Gemma's
layers under `forward`; other families are counted as Llama.

Not here: mixtures of experts, whose layers are not counted; memory that the sandboxes, the games and a file cache
use; the peak of loading a model, which is below that of an update except under adapters of a large model.

Sizes are in bytes where a name says so, else in MB of 10^6 bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from selfplay.learner.batch import Block, Row
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.learner.options import Options

MB = 1_000_000
FLOAT32 = 4
FLOOR_MB = 400
"""Resident memory of Python with torch and transformers imported, before a model is loaded."""
SLACK = 1.17
"""Resident memory for each byte that autograd keeps of the layers: the heap has gaps between tensors of many sizes.
Fitted to two measured updates of SmolLM2-135M in bfloat16 (`tests/bench/memory.py`, the first two points)."""
PASS_BYTES = 2 * FLOAT32 << 19
"""The two buffers of `head.PASS_ELEMENTS` that the head's passes over the vocabulary go through."""
KEPT_ELEMENTS = 1 << 27
"""As `head.KEPT_ELEMENTS`."""
CACHE_TOKENS = 32_768
"""Most tokens of a sampler's cache, rows times the longest row (`policy.local.LocalPolicy`)."""
BITS8 = 1.02
"""Bytes an entry of a moment in 8 bits, its share of the blocks' scales included."""
CGROUP = Path("/sys/fs/cgroup/memory.max")

DType = Literal["bfloat16", "float32"]
SIZES: Mapping[str, int] = {"bfloat16": 2, "float32": FLOAT32}


@record
class Shape:
    """What of a model decides memory."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    context: int
    """Longest prompt and reply, in tokens."""
    tied: bool
    """Is the output head the input embedding?"""
    windows: tuple[int, ...]
    """Of each layer's attention, in tokens; 0 where it has none."""
    norms: int
    """Of the hidden state, a layer."""
    wide_norms: bool
    """Do norms multiply by their weight in float32?"""
    query_norms: bool
    """Are queries and keys normed, too?"""

    @property
    def linear(self) -> int:
        """Parameters of the linear layers of one layer."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """All of them but norms and biases, which are less than a thousandth."""
        return self.hidden * self.vocabulary * (1 if self.tied else 2) + self.layers * self.linear

    def adapters(self, rank: int) -> int:
        """Parameters of adapters of `rank` in every linear layer."""
        ends = 4 * self.hidden + 2 * self.head_size * (self.heads + self.kv_heads) + 3 * self.hidden
        return rank * self.layers * (ends + 3 * self.intermediate)


@record
class Setup:
    """What of a run's settings decides memory."""

    dtype: DType
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    lora_rank: int = 0
    reference: bool = False
    """Is a frozen copy kept for a divergence?"""
    rows: int = 0
    """Replies that a sampler decodes at the same time; 0: there is no sampler."""
    samplers: int = 1
    """One, or one for each role that has adapters of its own (`policy.by_role`); each has a cache."""


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """The shape that the contents of `config.json` describe; None where it is not a decoder that is counted here."""
    text: Mapping[str, Any] = config.get("text_config") or config
    if any(text.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        return None
    try:
        hidden, layers, heads = (int(text[k]) for k in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
        family = str(text.get("model_type", ""))
        return Shape(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or hidden // heads),
            intermediate=int(text["intermediate_size"]),
            vocabulary=int(text["vocab_size"]),
            context=int(text["max_position_embeddings"]),
            tied=bool(text.get("tie_word_embeddings", family.startswith("gemma"))),
            windows=_windows(text, layers),
            norms=4 if family.startswith("gemma3") else 2,
            wide_norms=family.startswith("gemma"),
            query_norms=family.startswith(("qwen3", "gemma3")),
        )
    except KeyError:
        return None


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    window = int(text.get("sliding_window") or 0)
    kinds = text.get("layer_types")
    if not isinstance(kinds, Sequence):
        kinds = ["full_attention" if text.get("use_sliding_window") is False else "sliding_attention"] * layers
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def fixed(shape: Shape, setup: Setup) -> dict[str, float]:
    """What lies in memory whatever is learnt from, in MB, by name."""
    size, all_, trained = SIZES[setup.dtype], shape.parameters, shape.parameters
    if setup.lora_rank:
        trained = shape.adapters(setup.lora_rank)
        all_ += trained
    cached = 2 * shape.layers * shape.kv_heads * shape.head_size * size
    moments = 2 * (FLOAT32 if setup.optimizer == "adamw" else BITS8)
    # In float32 the compute copy of what learns is the parameters themselves.
    copies = all_ - trained if setup.dtype == "float32" else all_
    found = {
        "Python and libraries": FLOOR_MB,
        "parameters": FLOAT32 * trained / MB,
        f"their copy in {setup.dtype}": size * copies / MB,
        "gradients": FLOAT32 * trained / MB,
        "moments": moments * trained / MB,
        "reference": size * all_ / MB if setup.reference and not setup.lora_rank else 0.0,
        "sampler's cache": setup.samplers * min(setup.rows * shape.context, CACHE_TOKENS) * cached / MB,
    }
    return {name: mb for name, mb in found.items() if mb}


def update_mb(shape: Shape, row: Row, *, setup: Setup, recompute: bool) -> dict[str, float]:
    """What one micro-batch needs on top of `fixed`, in MB, by name: when its backward pass begins."""
    size, trained = SIZES[setup.dtype], len(row.targets)
    kept = _again_bytes(shape, row, size=size) if recompute else _kept_bytes(shape, row, size=size)
    head = size * min(trained * shape.vocabulary, KEPT_ELEMENTS) + PASS_BYTES
    if not setup.lora_rank:
        head += size * shape.vocabulary * shape.hidden
    layer = size * len(row.token_ids) * 3 * shape.intermediate
    return {"activations": SLACK * kept / MB, "probabilities of trained tokens": max(head, layer) / MB}


def _kept_bytes(shape: Shape, row: Row, *, size: int) -> int:
    """What autograd keeps of all layers."""
    total = shape.layers * len(row.token_ids) * _token_bytes(shape, size=size)
    for window, layers in Counter(shape.windows).items():
        total += layers * sum(_block_bytes(shape, b, window=window, size=size) for b in _blocks(row))
    return total


def _again_bytes(shape: Shape, row: Row, *, size: int) -> int:
    """What autograd keeps where layers are computed again: their inputs, and one layer with one block of attention."""
    inputs = shape.layers * len(row.token_ids) * shape.hidden * FLOAT32
    widest = max(_block_bytes(shape, b, window=w, size=size) for b in _blocks(row) for w in set(shape.windows))
    return inputs + len(row.token_ids) * _token_bytes(shape, size=size) + 3 * widest


def _token_bytes(shape: Shape, *, size: int) -> int:
    """What autograd keeps of one token in one layer, attention's weights aside.

    Norms keep their input and the normed value, of the hidden state both in float32; it enters five products, each of
    which keeps its own copy where that is narrower; the gated unit keeps gate, activation, the other factor and the
    product; attention its queries, keys, values, result.
    """
    normed = FLOAT32 + (FLOAT32 if shape.wide_norms else size)
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    entering = 5 if size < FLOAT32 else 2
    total = shape.norms * shape.hidden * 2 * FLOAT32 + entering * shape.hidden * size
    total += 4 * shape.intermediate * size + 2 * (queries + keys) * size
    return total + (queries + keys) * normed if shape.query_norms else total


def _blocks(row: Row) -> list[Block]:
    return [block for bundle in row.bundles for block in bundle.blocks]


def _block_bytes(shape: Shape, block: Block, *, window: int, size: int) -> int:
    """Attention's weights of one block, and its copy of keys and values where it needs one."""
    begin = block.num_context + block.start - block.first_key
    keys = block.num_context + block.stop - block.first_key - (max(0, begin + 1 - window) if window else 0)
    copied = keys if block.num_context not in (0, block.first_key) else 0
    weights = (block.stop - block.start) * keys * shape.heads
    return size * (weights + copied * 2 * shape.kv_heads * shape.head_size)


@record
class Room:
    """What one micro-batch may need."""

    shape: Shape | None
    """None: not known, so no layers are computed again."""
    setup: Setup
    free_mb: float | None
    """None: anything."""

    def tight(self, row: Row) -> bool:
        """Would `row` need more, unless its layers are computed again?"""
        if self.shape is None or self.free_mb is None:
            return False
        return sum(update_mb(self.shape, row, setup=self.setup, recompute=False).values()) > self.free_mb


def room_of(shape: Shape | None, setup: Setup, *, memory_mb: float | None) -> Room:
    """What `memory_mb` leaves beside what is always there."""
    if shape is None or memory_mb is None:
        return Room(shape=shape, setup=setup, free_mb=None)
    return Room(shape=shape, setup=setup, free_mb=memory_mb - sum(fixed(shape, setup).values()))


def setup_of(options: Options) -> Setup:
    """Of the learner's options."""
    adapters = max(1, len(options.lora_roles))
    return Setup(
        dtype=options.dtype,
        optimizer=options.optimizer,
        lora_rank=options.lora_rank * adapters,
        reference=options.kl_coef > 0.0,
        rows=options.sampler_rows,
        samplers=adapters,
    )


def limit_mb(memory_mb: int, *, card_mb: float | None = None) -> float:
    """What learner and sampler may use: `memory_mb`, or `card_mb` of the card that they are on, or half of this
    machine's (or this container's) memory.
    """
    if memory_mb or card_mb is not None:
        return float(memory_mb or card_mb or 0.0)
    bytes_ = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Another system has no such file, a container without a limit has `max` in it.
    with suppress(OSError, ValueError):
        bytes_ = min(bytes_, int(CGROUP.read_text(encoding="ascii")))
    return bytes_ / 2 / MB
