"""Continuous batched decoding on one thread: rows come and go between steps, each as if it were alone.

Equal prompts are prefilled once, by a forward of their own, and their keys and values copied to every row
that starts from them. A row that ends leaves its place to the next one. Tokens and log-probabilities of a
row do not depend, bit for bit, on the other rows (`attention`, `draws`).

Not here: waiting, cancellation and threads (`local`). Nothing is kept between weights: `rest` forgets the
prompts, and `Engine` is told the version of the weights so that it never continues from older ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from selfplay.policy import Request, Tokenizer
from selfplay.policy.attention import ROW_TILE, TILE, RowCache, Step, Tables, check_model, decoding, tables_of, tiled
from selfplay.policy.draws import Drawer, uniforms
from selfplay.types import Stop


@dataclass(slots=True, eq=False)
class Row:
    """A reply under way."""

    request: Request
    context: int
    """Prompt and reply end here at the latest, in tokens."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    version: int = 0
    """Of the weights when the row was admitted."""
    stop: Stop | None = None
    dropped: bool = False
    """Nobody waits for it any more."""
    _uniforms: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Prompt and reply so far, in tokens."""
        return len(self.request.prompt_ids) + len(self.token_ids)

    @property
    def reserve(self) -> int:
        """The longest that prompt and reply can get, in tokens."""
        return min(len(self.request.prompt_ids) + self.request.sampling.max_tokens, self.context)

    def uniform(self) -> float:
        """The number that decides the next token: a pure function of the request's seed and the token's index."""
        index = len(self.token_ids)
        if index >= len(self._uniforms):
            self._uniforms = uniforms(self.request.seed, max(64, 2 * index)).tolist()
        return self._uniforms[index]

    def append(self, token_id: int, logprob: float, *, tokenizer: Tokenizer) -> None:
        """Take one token, and decide whether the reply ends with it."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        sampling = self.request.sampling
        if token_id in tokenizer.eos_ids or _stopped(self.token_ids, sampling.stop, tokenizer=tokenizer):
            self.stop = Stop.DONE
        elif len(self.token_ids) >= sampling.max_tokens:
            self.stop = Stop.TOKENS
        elif self.length >= self.context:
            self.stop = Stop.CONTEXT


@dataclass(slots=True)
class _Prompt:
    """A prefilled prompt."""

    tables: list[Tables]
    logits_1V: torch.Tensor
    """Of its last position."""


class Engine:
    """The rows in flight and their keys and values. Every method runs on the torch thread.

    `max_rows` limits the batch; `kv_tokens` limits rows times the longest row, in tokens of cache.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, *, max_rows: int, kv_tokens: int) -> None:
        check_model(model)
        self._model = model
        self._tokenizer = tokenizer
        self._max_rows = max_rows
        self._kv_tokens = kv_tokens
        self._device: torch.device = model.device
        self._drawer = Drawer(model.config.get_text_config().vocab_size, device=self._device)
        self._rows: list[Row | None] = []
        self._cache: RowCache | None = None
        self._prompts: OrderedDict[tuple[int, ...], _Prompt] = OrderedDict()
        self._version = 0
        self.tokens = 0
        """Sampled so far."""

    @property
    def rows(self) -> int:
        """How many rows are in flight."""
        return sum(row is not None for row in self._rows)

    def fits(self, row: Row, *, among: Iterable[Row] = ()) -> bool:
        """Is there room for `row` beside those in flight and those of `among`, however long all of them get?"""
        live = [r for r in (*self._rows, *among, row) if r is not None]
        longest = max(tiled(r.reserve, TILE) for r in live)
        return len(live) == 1 or (len(live) <= self._max_rows and len(live) * longest <= self._kv_tokens)

    def release(self) -> list[Row]:
        """Free the places of the rows nobody waits for any more, and return those rows."""
        gone = [row for row in self._rows if row is not None and row.dropped]
        self._rows = [None if row in gone else row for row in self._rows]
        return gone

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row], *, version: int) -> list[Row]:
        """Prefill `rows` and sample the first token of each; returns those that end with it."""
        if version != self._version:
            self._prompts.clear()
            self._version = version
        siblings: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            row.version = version
            siblings.setdefault(row.request.prompt_ids, []).append(row)
        # one prompt after the other, so that few are kept beside the rows
        for prompt_ids, same in siblings.items():
            prompt = self._prefill(prompt_ids)
            self._draw(same, prompt.logits_1V.expand(len(same), -1))
            for row in same:
                if row.stop is None:
                    self._place(row, prompt)
            self._forget()
        return [row for row in rows if row.stop is not None]

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """One more token for every row in flight; returns the rows that end, after freeing their places."""
        self._settle()
        live = [row for row in self._rows if row is not None]
        if not live or self._cache is None:
            return []
        # the rows that fill up the tile feed some token at position 0; their result is thrown away
        blank = tiled(len(live), ROW_TILE) - len(live)
        ids_B = torch.tensor([row.token_ids[-1] for row in live] + [live[0].token_ids[-1]] * blank)
        positions_B = torch.tensor([row.length - 1 for row in live] + [0] * blank).to(self._device)
        step = Step(positions_B=positions_B, capacity=self._cache.capacity)
        with decoding(self._model, step):
            logits_BV = self._model(
                input_ids=ids_B[:, None].to(self._device),
                position_ids=positions_B[:, None],
                past_key_values=self._cache,
                use_cache=True,
            ).logits[:, -1]
        self._draw(live, logits_BV[: len(live)])
        self._rows = [None if row is None or row.stop is not None else row for row in self._rows]
        return [row for row in live if row.stop is not None]

    def rest(self) -> None:
        """Forget every prompt: the weights may change before the next row."""
        self._prompts.clear()

    def clear(self) -> None:
        """Drop every row, and give the memory back."""
        self._rows.clear()
        self._prompts.clear()
        self._cache = None

    def _draw(self, rows: Sequence[Row], logits_NV: torch.Tensor) -> None:
        drawn = self._drawer.draw(
            logits_NV,
            temperatures=[row.request.sampling.temperature for row in rows],
            uniforms=[row.uniform() for row in rows],
        )
        self.tokens += len(rows)
        for row, token_id, logprob in zip(rows, drawn.ids, drawn.logprobs, strict=True):
            row.append(token_id, logprob, tokenizer=self._tokenizer)

    def _prefill(self, prompt_ids: tuple[int, ...]) -> _Prompt:
        """A forward of this prompt alone, so that nothing else enters its sums; once for equal prompts."""
        known = self._prompts.get(prompt_ids)
        if known is None:
            cache = DynamicCache()
            ids_1P = torch.tensor([prompt_ids], device=self._device)
            output = self._model(input_ids=ids_1P, past_key_values=cache, use_cache=True, logits_to_keep=1)
            known = self._prompts[prompt_ids] = _Prompt(tables=tables_of(cache), logits_1V=output.logits[:, -1])
        self._prompts.move_to_end(prompt_ids)
        return known

    def _forget(self) -> None:
        """Keep the prompts used last, up to a sixteenth of the budget: siblings may come a moment later."""
        while sum(map(len, self._prompts)) > self._kv_tokens // 16 and len(self._prompts) > 1:
            self._prompts.popitem(last=False)

    def _place(self, row: Row, prompt: _Prompt) -> None:
        """Give `row` the first free place, and its prompt's keys and values."""
        if self._cache is None:
            self._cache = RowCache(prompt.tables)
        place = self._rows.index(None) if None in self._rows else len(self._rows)
        self._rows[place : place + 1] = [row]
        self._resize()
        self._cache.place(prompt.tables, row=place)

    def _settle(self) -> None:
        """Close the gaps, and make room for one more key a row."""
        while None in self._rows:
            last = self._rows.pop()
            if last is not None and self._cache is not None:
                gap = self._rows.index(None)
                self._rows[gap] = last
                self._cache.move(len(self._rows), target=gap, length=last.length)
        self._resize()

    def _resize(self) -> None:
        if self._cache is not None and self._rows:
            longest = max(row.length for row in self._rows if row is not None)
            self._cache.resize(len(self._rows), length=longest)


def _stopped(token_ids: Sequence[int], stops: Sequence[str], *, tokenizer: Tokenizer) -> bool:
    """Does the decoded reply hold a stop string? Called after every token, so only its tail is decoded.

    A character takes at most four tokens (bytes); a few more make up for tokens that decode to nothing.
    """
    if not stops:
        return False
    tail = tokenizer.decode(token_ids[-(4 * max(map(len, stops)) + 8) :])
    return any(stop in tail for stop in stops)
