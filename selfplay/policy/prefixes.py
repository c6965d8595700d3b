"""Prefilled prompts, in pieces that later prompts with the same beginning use again.

A prompt is prefilled piece by piece: `PIECE` tokens from each multiple of `PIECE`, the rest last. Every piece is a
forward of its own behind the keys and values of the pieces before it, so what comes out is a function of the
weights and of the tokens up to the piece's end, bit for bit: it is the same computation whether the pieces before were
made a moment or a turn ago. So a conversation's next turn prefills only what follows the last whole piece of
its last prompt, prompts of one preamble share it, and nothing tells whether a piece was found or made.

What was decoded is not used again but prefilled with the next turn's tokens: a reply's keys and values come from
products of other shapes, whose last bits may differ.

Not here: decoding (`engine`), what the decoding rows keep (`attention.RowCache`).

Shapes: K key/value heads, P tokens of the piece, D head width, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from selfplay.policy.attention import Tables, tables_of
from selfplay.policy.precision import embedded, wide_sums

PIECE = 256
"""Tokens. A prompt of 512 takes 5 % longer in two pieces than in one, 15 % in four (SmolLM2-135M, bfloat16)."""


@dataclass(slots=True)
class Piece:
    """A prompt's tokens from `start` on, prefilled."""

    start: int
    num_tokens: int
    tables: list[Tables]
    """Of these tokens only, [1, K, P, D] each."""
    logits_1V: torch.Tensor
    """Of the last of them."""


class Prefixes:
    """The pieces used last, of one version of the weights, up to `tokens` of them (and those of the last prompt)."""

    def __init__(self, model: Any, *, tokens: int) -> None:
        self._model = model
        self._limit = tokens
        self._held = 0
        self._version = 0
        # a piece is always used after those that follow it were: the oldest is never one that others stand on
        self._pieces: OrderedDict[tuple[int, ...], Piece] = OrderedDict()

    def at(self, version: int) -> None:
        """Forget what weights of another version made."""
        if version != self._version:
            self.clear()
            self._version = version

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self._held = 0

    @torch.inference_mode()
    def prefill(self, prompt_ids: tuple[int, ...]) -> list[Piece]:
        """The pieces of a prompt of at least one token, in order; those not known are computed, this prompt alone."""
        ends = [*range(PIECE, len(prompt_ids), PIECE), len(prompt_ids)]
        pieces: list[Piece] = []
        for end in ends:
            known = self._pieces.get(prompt_ids[:end])
            if known is None:
                known = self._pieces[prompt_ids[:end]] = self._forward(prompt_ids[:end], behind=pieces)
                self._held += known.num_tokens
            pieces.append(known)
        for end in reversed(ends):
            self._pieces.move_to_end(prompt_ids[:end])
        while self._held > self._limit and len(self._pieces) > len(ends):
            self._held -= self._pieces.popitem(last=False)[1].num_tokens
        return pieces

    def _forward(self, ids: tuple[int, ...], *, behind: list[Piece]) -> Piece:
        start = sum(piece.num_tokens for piece in behind)
        cache = DynamicCache()
        for layer, tables in enumerate(zip(*[piece.tables for piece in behind], strict=True)):
            keys, values = (torch.cat(parts, dim=2) for parts in zip(*tables, strict=True))
            cache.update(keys, values, layer)
        ids_1P = torch.tensor([ids[start:]], device=self._model.device)
        with wide_sums(self._model):
            embeds_1PD = embedded(self._model, ids_1P)
            output = self._model(inputs_embeds=embeds_1PD, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return Piece(
            start=start,
            num_tokens=len(ids) - start,
            # copies: a part of a larger table would keep the whole of it in memory; and keys come out of the rotary
            # embedding wide, to be rounded when they enter a product
            tables=[
                (keys[:, :, start:].to(values.dtype, copy=True), values[:, :, start:].clone())
                for keys, values in tables_of(cache)
            ],
            logits_1V=output.logits[:, -1].clone(),
        )
