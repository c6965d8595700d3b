"""Log-probabilities and entropies of the trained tokens of one packed row.

The transformer runs once over the row. Attention is ours, registered with `transformers` under
`ATTENTION`: per block, matmul, masked softmax, matmul, which for short sequences takes a third of the
time of `scaled_dot_product_attention` with a mask (2 cores, bfloat16). Layers that look back through
a sliding window do so here, too. Logits exist at trained positions only, a few rows at a time. The
gradients of embedding and output head, where one token's rows are summed hundreds of times, go straight
into float32 (`Sinks`). Where memory is short, layers are computed again in the backward pass: the same
operations on the same numbers, so the same bits.

Not here: losses (`grpo`), the layout of rows (`batch`), weights (`master`), when memory is short (`memory`).
Soft-capped attention and scaled logits are refused.

Shapes: R tokens of the row, N trained tokens, D hidden size, V vocabulary, K key heads, Q queries a
key head, L keys, H head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface
from transformers.modeling_layers import GradientCheckpointingLayer

from selfplay.errors import UserError
from selfplay.learner.batch import Block, Bundle, Row
from selfplay.learner.head import Head, Sinks
from selfplay.learner.heap import give_back
from selfplay.policy.precision import wide_sums, widened
from selfplay.types import record

ATTENTION = "selfplay_packed"
"""Name of our attention in `transformers`."""

UNKNOWN = ("final_logit_softcapping", "logit_scale", "logits_scaling", "attn_logit_softcapping")
"""Settings of model families whose head is more than one matrix, or whose attention is capped."""


@record
class Scores:
    """What the model thinks of the trained tokens."""

    logprob_N: Tensor
    """Natural log under the temperature, float32 or wider; carries the gradient."""
    entropy_N: Tensor
    """Of the next-token distribution under the temperature, in nats; no gradient."""


@record
class _View:
    """What the queries of one block look at: [`context`, `num_context`) and [`first`, `stop`) of the bundle."""

    context: int
    first: int
    hidden: Tensor
    """(Q, the last keys): what is added to scores, -inf where a query may not look and 0 elsewhere; all may look at the
    keys before."""


@dataclass(slots=True)
class _Plan:
    """What our attention needs to know, the same for every layer."""

    bundles: tuple[Bundle, ...]
    device: torch.device
    recompute: bool
    calls: int = 0
    _views: dict[tuple[Block, int], _View] = field(default_factory=dict)

    def view(self, block: Block, *, window: int) -> _View:
        """Equal blocks share a view, so there is one for each distinct block; `window` 0 means no sliding window."""
        if (block, window) not in self._views:
            self._views[block, window] = _view(block, window=window, device=self.device)
        return self._views[block, window]


def supported(model: nn.Module) -> None:
    """Check that `model` is one whose log-probabilities this file computes.

    Raises:
        UserError: it is not; names the reason.
    """
    config: Any = model.config
    family = getattr(config, "model_type", type(model).__name__)
    for name in UNKNOWN:
        if getattr(config, name, None) not in (None, 1.0):
            raise UserError(f"the learner does not know models with `{name}` (model type {family})")
    if getattr(config, "use_bidirectional_attention", False):
        raise UserError(f"the learner does not know models whose tokens see later ones (model type {family})")
    head = model.get_output_embeddings()  # type: ignore[operator]
    if not isinstance(head, nn.Linear) or head.bias is not None:
        raise UserError(f"the learner needs a linear output head without bias (model type {family})")


def score(model: nn.Module, row: Row, *, temperature: float, sinks: Sinks, recompute: bool = False) -> Scores:
    """Log-probabilities and entropies of the row's trained tokens, in the order of `row.targets`.

    Gradients of the input embedding and the output head are added to their `sinks` during `backward`;
    without an entry there they reach the parameter's `grad` as usual. With `recompute` only the input of
    each layer is kept until `backward`, which computes the rest again: less memory, the same result.

    Raises:
        UserError: a sample is longer than the model's context; or a layer of the model does not attend
            through the `transformers` interface (its row would leak from one sample into the next), has
            attention with a soft cap, or cannot be computed again.
    """
    embedding: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    head: nn.Linear = model.get_output_embeddings()  # type: ignore[operator]
    device = head.weight.device
    ids_R = torch.tensor(row.token_ids, device=device)
    recompute = recompute and torch.is_grad_enabled()
    plan = _Plan(bundles=row.bundles, device=device, recompute=recompute)
    config: Any = model.config
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and max(row.positions) >= context:
        raise UserError(
            f"a sample has {max(row.positions) + 2} tokens, and the model's context {context}",
            hint="shorten the role's prompt.md or what it shows, or name a model with a longer context",
        )
    with wide_sums(model), _attention(config), _recomputed(model) if recompute else nullcontext():
        output = model.base_model(  # type: ignore[operator]
            inputs_embeds=widened(_embed(embedding, ids_R, sinks))[None],
            position_ids=torch.tensor(row.positions, device=device)[None],
            use_cache=False,
            plan=plan,
        )
    if plan.calls != config.num_hidden_layers:
        raise UserError(f"the learner does not know model type {config.model_type}: not every layer is attention")
    hidden_ND = output.last_hidden_state[0].index_select(0, torch.tensor(row.sources, device=device))
    hidden_ND = hidden_ND.to(head.weight.dtype)
    targets_N = torch.tensor(row.targets, device=device)
    weight_VD = head.weight
    sink_VD = sinks.get(weight_VD) if isinstance(weight_VD, nn.Parameter) else None
    logprob_N, entropy_N = Head.apply(hidden_ND, weight_VD, targets_N, temperature, sink_VD)  # type: ignore[no-untyped-call]
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


@contextmanager
def _recomputed(model: nn.Module) -> Iterator[None]:
    """Inside, each layer's forward keeps its input alone."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        config: Any = model.config
        raise UserError(
            f"the layers of model type {config.model_type} cannot be computed again, and memory is short without that",
            hint="smaller micro-batches: -s learner.token_budget=1024; or more memory: -s learner.memory_mb=...",
        )

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        # The second computation comes after `score` has returned.
        if next(model.parameters()).device.type != "cpu":
            return nullcontext(), _attention(model.config)
        return _lean(nullcontext()), _lean(_attention(model.config))

    # note: not `gradient_checkpointing_enable`, which asks for the training mode and so for dropout.
    for layer in layers:
        again = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
        layer.forward = again
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def _lean(inner: AbstractContextManager[None]) -> Iterator[None]:
    # What a layer frees is not used again by the next: most of what is not kept would stay resident.
    try:
        with inner:
            yield
    finally:
        give_back()


def _view(block: Block, *, window: int, device: torch.device) -> _View:
    own_Q = torch.repeat_interleave(
        torch.arange(len(block.lengths), device=device), torch.tensor(block.lengths, device=device)
    )
    later_QQ = torch.ones(len(own_Q), len(own_Q), dtype=torch.bool, device=device).triu(1)
    hidden_QQ = later_QQ | (own_Q[:, None] != own_Q[None, :])
    # A block with several samples has each from its first own token on; another may continue a long sample.
    begin = block.num_context + block.start - block.first_key
    if not window or begin + max(block.lengths) <= window:
        return _View(context=0, first=block.first_key, hidden=_minus_infinity(hidden_QQ))
    low = max(0, begin + 1 - window)
    context = min(low, block.num_context)
    first = block.first_key + low - context
    position_Q = torch.cat([torch.arange(begin, begin + length, device=device) for length in block.lengths])
    shared = torch.arange(context, block.num_context, device=device)
    earlier = torch.arange(block.num_context + first - block.first_key, begin, device=device)
    position_L = torch.cat([shared, earlier, position_Q])
    hidden_QL = position_L[None, :] <= position_Q[:, None] - window
    hidden_QL[:, -len(own_Q) :] |= hidden_QQ
    return _View(context=context, first=first, hidden=_minus_infinity(hidden_QL))


def _minus_infinity(chosen: Tensor) -> Tensor:
    return torch.zeros(chosen.shape, device=chosen.device).masked_fill_(chosen, float("-inf"))


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
    query, key = query.to(value.dtype), key.to(value.dtype)
    if softcap is not None or ignored.get("s_aux") is not None or ignored.get("position_bias") is not None:
        raise UserError("the learner does not know attention with a soft cap, sinks or position biases")
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
    # Nested inside the layer's second computation: no more than one block's weights exist at a time.
    one = partial(checkpoint, _attend_block, use_reentrant=False, preserve_rng_state=False)
    attend_block = one if plan.recompute else _attend_block
    outputs = [
        attend_block(queries, keys, values, block, plan.view(block, window=sliding_window or 0))
        for bundle, queries, keys, values in parts
        for block in bundle.blocks
    ]
    return torch.cat(outputs, dim=2).flatten(0, 1).transpose(0, 1)[None], None


def _attend_block(query_KGRH: Tensor, key_KRH: Tensor, value_KRH: Tensor, block: Block, view: _View) -> Tensor:
    queries_KGQH = query_KGRH[:, :, block.start : block.stop]
    keys_KLH, values_KLH = _visible(key_KRH, block, view), _visible(value_KRH, block, view)
    mixed_KQH = _Attention.apply(queries_KGQH, keys_KLH, values_KLH, view.hidden)  # type: ignore[no-untyped-call]
    return mixed_KQH.view_as(queries_KGQH)  # type: ignore[no-any-return]


class _Attention(torch.autograd.Function):
    """softmax(query key') value under a mask; scores are never narrower than float32, and only the weights are kept."""

    @staticmethod
    def forward(ctx: Any, query_KGQH: Tensor, key_KLH: Tensor, value_KLH: Tensor, hidden: Tensor) -> Tensor:
        """`hidden` is of the last keys, as `_View` has it."""
        query_KQH = query_KGQH.flatten(1, 2)
        with torch.autocast(query_KQH.device.type, enabled=False):
            scores_KQL = _products(query_KQH, key_KLH.transpose(1, 2))
            scores_KGQL = scores_KQL.view(*query_KGQH.shape[:3], -1)
            # note: a fifth of the time of `masked_fill_`.
            scores_KGQL[..., -hidden.shape[1] :] += hidden
            weights_KQL = torch.softmax(scores_KQL, dim=-1).to(value_KLH.dtype)
            mixed_KQH = weights_KQL @ value_KLH
        ctx.shape = query_KGQH.shape
        ctx.save_for_backward(query_KQH, key_KLH, value_KLH, weights_KQL)
        return mixed_KQH

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_KQH, key_KLH, value_KLH, weights_KQL = ctx.saved_tensors
        gradient_KQH = gradients[0]
        value_gradient_KLH = weights_KQL.transpose(1, 2) @ gradient_KQH
        weights_gradient_KQL = gradient_KQH @ value_KLH.transpose(1, 2)
        scores_gradient_KQL = torch._softmax_backward_data(weights_gradient_KQL, weights_KQL, -1, weights_KQL.dtype)
        query_gradient_KGQH = (scores_gradient_KQL @ key_KLH).view(ctx.shape)
        return query_gradient_KGQH, scores_gradient_KQL.transpose(1, 2) @ query_KQH, value_gradient_KLH, None


def _products(query_KQH: Tensor, key_KHL: Tensor) -> Tensor:
    """query key, summed and given in float32 at least, whatever the factors' type."""
    if query_KQH.dtype != torch.bfloat16:
        return widened(query_KQH) @ widened(key_KHL)
    # note: a kernel that rounds its factors to bfloat16 (on a card to TF32), which does nothing to these: the same
    # result in half the time.
    kernels: Any = torch.backends.cuda if query_KQH.is_cuda else torch.backends.mkldnn
    narrow = "tf32" if query_KQH.is_cuda else "bf16"
    before, kernels.matmul.fp32_precision = kernels.matmul.fp32_precision, narrow
    try:
        return query_KQH.float() @ key_KHL.float()
    finally:
        kernels.matmul.fp32_precision = before


def _visible(rows_KRH: Tensor, block: Block, view: _View) -> Tensor:
    """Keys or values that the block may look at; its own come last."""
    shared = block.num_context - view.context
    if shared == 0 or block.num_context == view.first:
        return rows_KRH[:, view.first - shared : block.stop]
    return torch.cat([rows_KRH[:, view.context : block.num_context], rows_KRH[:, view.first : block.stop]], dim=1)


AttentionInterface.register(ATTENTION, attend)


def _embed(embedding: nn.Module, ids_R: Tensor, sinks: Sinks) -> Tensor:
    weight, scale = embedding.weight, getattr(embedding, "embed_scale", 1.0)
    scaled = type(embedding).__name__.endswith("ScaledWordEmbedding")
    # Other subclasses mix what they look up: their own forward is the only one that is right.
    if (scaled or type(embedding) is nn.Embedding) and isinstance(weight, nn.Parameter) and weight in sinks:
        embedded: Tensor = _Lookup.apply(weight, ids_R, embedding.padding_idx, sinks[weight])  # type: ignore[no-untyped-call]
        if scaled:
            embedded = embedded * (scale.to(weight.dtype) if isinstance(scale, Tensor) else scale)
        return embedded
    return embedding(ids_R)  # type: ignore[no-any-return]


class _Lookup(torch.autograd.Function):
    """Rows of an embedding; its gradient is summed in float32, and as torch's own leaves out the padding."""

    @staticmethod
    def forward(ctx: Any, weight_VD: Tensor, ids_R: Tensor, padding: int | None, sink_VD: Tensor) -> Tensor:
        ctx.ids_R, ctx.padding, ctx.sink_VD = ids_R, padding, sink_VD
        return weight_VD[ids_R]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        gradient_RD = gradients[0].to(ctx.sink_VD.dtype)
        if ctx.padding is not None:
            gradient_RD = gradient_RD.masked_fill((ctx.ids_R == ctx.padding)[:, None], 0.0)
        ctx.sink_VD.index_add_(0, ctx.ids_R, gradient_RD)
        return None, None, None, None
