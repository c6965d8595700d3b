"""Log-probabilities and entropies of the trained tokens of one packed row.

The transformer runs once over the row. Attention is ours, registered with `transformers` under
`ATTENTION`: per block, matmul, masked softmax, matmul, which for short sequences takes a third of the
time of `scaled_dot_product_attention` with a mask (2 cores, bfloat16). Logits exist at trained
positions only, a few rows at a time. The gradients of embedding and output head, where one token's
rows are summed hundreds of times, go straight into float32 (`Sinks`).

Not here: losses (`grpo`), the layout of rows (`batch`), weights (`master`).

Shapes: R tokens of the row, N trained tokens, D hidden size, V vocabulary, K key heads, Q queries a
key head, L keys, H head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from selfplay.errors import UserError
from selfplay.learner.batch import Block, Bundle, Row
from selfplay.types import record

ATTENTION = "selfplay_packed"
"""Name of our attention in `transformers`."""

LOGIT_ELEMENTS = 1 << 22
"""Logits in flight, so that the passes over them stay in the processor's cache."""

ADD_ELEMENTS = 1 << 20
"""Elements that `add_in_place` adds at once."""

SCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of model families whose head is more than one matrix."""

Sinks = Mapping[nn.Parameter, Tensor]
"""Float32 gradient of each parameter, of the parameter's shape."""


@record
class Scores:
    """What the model thinks of the trained tokens."""

    logprob_N: Tensor
    """Natural log under the temperature, float32 or wider; carries the gradient."""
    entropy_N: Tensor
    """Of the next-token distribution under the temperature, in nats; no gradient."""


@dataclass(slots=True)
class _Plan:
    """What our attention needs to know, the same for every layer."""

    bundles: tuple[Bundle, ...]
    hidden: Mapping[Block, Tensor]
    """For each block, True where a query may not look at a key of [start, stop)."""
    calls: int = 0


def supported(model: nn.Module) -> None:
    """Check that `model` is one whose log-probabilities this file computes.

    Raises:
        UserError: it is not; names the reason.
    """
    config: Any = model.config
    family = getattr(config, "model_type", type(model).__name__)
    for name in SCALED_LOGITS:
        if getattr(config, name, None) not in (None, 1.0):
            raise UserError(f"the learner does not know models with `{name}` (model type {family})")
    head = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or head.bias is not None:
        raise UserError(f"the learner needs a linear output head without bias (model type {family})")


def score(model: nn.Module, row: Row, *, temperature: float, sinks: Sinks) -> Scores:
    """Log-probabilities and entropies of the row's trained tokens, in the order of `row.targets`.

    Gradients of the input embedding and the output head are added to their `sinks` during `backward`;
    without an entry there they reach the parameter's `grad` as usual.

    Raises:
        UserError: a layer of the model does not attend through the `transformers` interface (its row
            would leak from one sample into the next), or attends through a window shorter than the row.
    """
    embedding: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    head: nn.Linear = model.get_output_embeddings()  # type: ignore[operator]
    device = head.weight.device
    ids_R = torch.tensor(row.token_ids, device=device)
    plan = _Plan(bundles=row.bundles, hidden=_hidden(row, device))
    config: Any = model.config
    with _attention(config):
        output = model.base_model(  # type: ignore[operator]
            inputs_embeds=_embed(embedding, ids_R, sinks)[None],
            position_ids=torch.tensor(row.positions, device=device)[None],
            use_cache=False,
            plan=plan,
        )
    if plan.calls != config.num_hidden_layers:
        raise UserError(f"the learner does not know model type {config.model_type}: not every layer is attention")
    hidden_ND = output.last_hidden_state[0].index_select(0, torch.tensor(row.sources, device=device))
    targets_N = torch.tensor(row.targets, device=device)
    weight_VD = head.weight
    sink_VD = sinks.get(weight_VD) if isinstance(weight_VD, nn.Parameter) else None
    logprob_N, entropy_N = _Head.apply(hidden_ND, weight_VD, targets_N, temperature, sink_VD)  # type: ignore[no-untyped-call]
    return Scores(logprob_N=logprob_N, entropy_N=entropy_N)


@contextmanager
def _attention(config: Any) -> Iterator[None]:
    # The module is shared with the sampler, which sets an attention of its own.
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def _hidden(row: Row, device: torch.device) -> dict[Block, Tensor]:
    """Equal blocks share a mask, so the dictionary has one entry a distinct block."""
    masks: dict[Block, Tensor] = {}
    for bundle in row.bundles:
        for block in bundle.blocks:
            if block not in masks:
                own = torch.repeat_interleave(
                    torch.arange(len(block.lengths), device=device), torch.tensor(block.lengths, device=device)
                )
                later = torch.ones(len(own), len(own), dtype=torch.bool, device=device).triu(1)
                masks[block] = later | (own[:, None] != own[None, :])
    return masks


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    plan: _Plan,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **ignored: object,
) -> tuple[Tensor, None]:
    """Attention of every block of the row; the signature is that of the `transformers` interface.

    Args:
        query: (1, heads, R, H).
        key: (1, K, R, H); each key head serves heads / K queries.
        value: as `key`.

    Returns:
        (1, R, heads, H) and None.
    """
    plan.calls += 1
    longest = max(bundle.num_tokens for bundle in plan.bundles)
    if softcap is not None or (sliding_window is not None and longest > sliding_window):
        raise UserError("the learner does not know attention with a soft cap or a window shorter than the samples")
    heads, kept = query.shape[1], key.shape[1]
    query_KGRH = (query[0] * scaling).view(kept, heads // kept, *query.shape[2:])
    sizes = [bundle.num_tokens for bundle in plan.bundles]
    parts = zip(
        plan.bundles,
        query_KGRH.split_with_sizes(sizes, 2),
        key[0].split_with_sizes(sizes, 1),
        value[0].split_with_sizes(sizes, 1),
        strict=True,
    )
    outputs = [
        _attend_block(queries, keys, values, block, plan.hidden[block])
        for bundle, queries, keys, values in parts
        for block in bundle.blocks
    ]
    return torch.cat(outputs, dim=2).flatten(0, 1).transpose(0, 1)[None], None


def _attend_block(query_KGRH: Tensor, key_KRH: Tensor, value_KRH: Tensor, block: Block, hidden: Tensor) -> Tensor:
    queries_KGQH = query_KGRH[:, :, block.start : block.stop]
    keys_KLH, values_KLH = _visible(key_KRH, block), _visible(value_KRH, block)
    scores_KQL = queries_KGQH.flatten(1, 2) @ keys_KLH.transpose(1, 2)
    scores_KGQL = scores_KQL.view(*queries_KGQH.shape[:3], -1)
    scores_KGQL[..., -hidden.shape[0] :].masked_fill_(hidden, float("-inf"))
    # note: in bfloat16 the kernel sums in float32 and rounds once.
    weights_KQL = torch.softmax(scores_KQL, dim=-1)
    return (weights_KQL @ values_KLH).view_as(queries_KGQH)


def _visible(rows_KRH: Tensor, block: Block) -> Tensor:
    """Keys or values that the block may look at; its own come last."""
    if block.num_context in (0, block.first_key):
        return rows_KRH[:, block.first_key - block.num_context : block.stop]
    return torch.cat([rows_KRH[:, : block.num_context], rows_KRH[:, block.first_key : block.stop]], dim=1)


AttentionInterface.register(ATTENTION, attend)


def _embed(embedding: nn.Module, ids_R: Tensor, sinks: Sinks) -> Tensor:
    # Subclasses scale or mix what they look up: their own forward is the only one that is right.
    weight = embedding.weight
    if type(embedding) is nn.Embedding and isinstance(weight, nn.Parameter) and weight in sinks:
        embedded: Tensor = _Lookup.apply(weight, ids_R, sinks[weight])  # type: ignore[no-untyped-call]
        return embedded
    return embedding(ids_R)  # type: ignore[no-any-return]


class _Lookup(torch.autograd.Function):
    """Rows of an embedding; its gradient is summed in float32."""

    @staticmethod
    def forward(ctx: Any, weight_VD: Tensor, ids_R: Tensor, sink_VD: Tensor) -> Tensor:
        ctx.ids_R, ctx.sink_VD = ids_R, sink_VD
        return weight_VD[ids_R]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.sink_VD.index_add_(0, ctx.ids_R, gradients[0].to(ctx.sink_VD.dtype))
        return None, None, None


class _Head(torch.autograd.Function):
    """Output head, log-softmax and pick in one: no float32 logits are kept.

    d logprob / d logits = (one-hot - p) / temperature, so only p is kept, in the model's type.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, temperature: float, sink_VD: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        num_rows, vocabulary = hidden_ND.shape[0], weight_VD.shape[0]
        probability_NV = hidden_ND.new_empty(num_rows, vocabulary)
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        logprob_N = torch.empty(num_rows, dtype=wide, device=hidden_ND.device)
        entropy_N = torch.empty_like(logprob_N)
        # note: below 4 rows a float32 product depends on how many rows there are.
        step = max(4, LOGIT_ELEMENTS // vocabulary)
        for start in range(0, num_rows, step):
            rows = slice(start, start + step)
            logits_CV = F.linear(hidden_ND[rows], weight_VD)
            if temperature != 1.0:
                logits_CV = logits_CV.to(wide) / temperature
            logprobs_CV = torch.log_softmax(logits_CV, dim=-1, dtype=wide)
            chosen = targets_N[rows].unsqueeze(1)
            logprob_N[rows] = logprobs_CV.gather(1, chosen).squeeze(1)
            probs_CV = logprobs_CV.exp()
            probability_NV[rows] = probs_CV
            entropy_N[rows] = -torch.linalg.vecdot(probs_CV, logprobs_CV)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N)
        ctx.probability_NV, ctx.temperature, ctx.sink_VD = probability_NV, temperature, sink_VD
        ctx.mark_non_differentiable(entropy_N)
        return logprob_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_ND, weight_VD, targets_N = ctx.saved_tensors
        scale_N1 = (gradients[0] / ctx.temperature).to(hidden_ND.dtype).unsqueeze(1)
        logits_NV = ctx.probability_NV.mul_(-scale_N1)
        ctx.probability_NV = None
        logits_NV.scatter_add_(1, targets_N.unsqueeze(1), scale_N1)
        weight_gradient_VD = logits_NV.t() @ hidden_ND
        if ctx.sink_VD is not None:
            add_in_place(ctx.sink_VD, weight_gradient_VD)
            weight_gradient_VD = None
        return logits_NV @ weight_VD, weight_gradient_VD, None, None, None


def add_in_place(sum_: Tensor, part: Tensor) -> None:
    """Add `part` to the float32 `sum_`, piece by piece: five times quicker than one mixed-type `add_` (113 MB)."""
    total, addend = sum_.view(-1), part.reshape(-1)
    for start in range(0, total.numel(), ADD_ELEMENTS):
        piece = slice(start, start + ADD_ELEMENTS)
        total[piece].add_(addend[piece].float())
