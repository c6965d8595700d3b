"""Continuous batched decoding on one thread: rows come and go between steps, each as if it were alone.

Equal prompts are prefilled once, and what prompts have in common at their beginning is prefilled once as well
(`prefixes`); keys and values are copied to every row that starts from them. A row that ends leaves its place to the
next one. Tokens and log-probabilities of a row do not depend, bit for bit, on the other rows (`attention`,
`draws`) nor on what was prefilled before.

Not here: waiting, cancellation and threads (`local`). Nothing is kept between weights: `Engine` is told their
version, and never continues from older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from selfplay.errors import UserError
from selfplay.policy import Request, Tokenizer
from selfplay.policy.attention import TILE, RowCache, Step, check_model, decoding, tiled
from selfplay.policy.draws import Drawer, uniforms
from selfplay.policy.precision import embedded, wide_sums
from selfplay.policy.prefixes import Piece, Prefixes
from selfplay.policy.rows import ROW_TILE, counts
from selfplay.types import Stop

_MARGIN = 8
"""Characters of a reply's tail beyond the longest stop string and the text of the last tokens."""
_UNSETTLED = 4
"""Tokens whose text may still change: a character of UTF-8 has up to four bytes, each at most one token."""


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


class Engine:
    """The rows in flight and their keys and values. Every method runs on the torch thread.

    `max_rows` limits the batch; `kv_tokens` limits rows times the longest row, in tokens of cache, with rows counted by
    whole tiles. The first tile is the exception: a lone row is never refused, and takes as much as `ROW_TILE` of its
    length. Prompts kept for later ones take up to a quarter of `kv_tokens` beside it.
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
        self._prefixes = Prefixes(model, tokens=kv_tokens // 4)
        self._counts = counts(model, most=max_rows)
        self.tokens = 0
        """Sampled so far."""

    @property
    def invariant(self) -> bool:
        """Does no bit of a row depend on the rows beside it?"""
        return bool(self._counts)

    @property
    def rows(self) -> int:
        """How many rows are in flight."""
        return sum(row is not None for row in self._rows)

    def fits(self, row: Row, *, among: Iterable[Row] = ()) -> bool:
        """Is there room for `row` beside those in flight and those of `among`, however long all of them get?"""
        live = [r for r in (*self._rows, *among, row) if r is not None]
        longest = max(tiled(r.reserve, TILE) for r in live)
        # the cache holds whole tiles of rows; the others of the first one cost nothing more than a lone row does
        rows = tiled(len(live), ROW_TILE) if len(live) > ROW_TILE else len(live)
        return len(live) == 1 or (len(live) <= self._max_rows and rows * longest <= self._kv_tokens)

    def release(self) -> list[Row]:
        """Free the places of the rows nobody waits for any more, and return those rows."""
        gone = [row for row in self._rows if row is not None and row.dropped]
        self._rows = [None if row in gone else row for row in self._rows]
        return gone

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row], *, version: int) -> list[Row]:
        """Prefill `rows` and sample the first token of each; returns those that end with it."""
        self._prefixes.at(version)
        siblings: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            row.version = version
            siblings.setdefault(row.request.prompt_ids, []).append(row)
        # one prompt after the other, so that few are kept beside the rows
        for prompt_ids, same in siblings.items():
            pieces = self._prefixes.prefill(prompt_ids)
            self._draw(same, pieces[-1].logits_1V.expand(len(same), -1))
            for row in same:
                if row.stop is None:
                    self._place(row, pieces)
        return [row for row in rows if row.stop is not None]

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """One more token for every row in flight; returns the rows that end, after freeing their places."""
        self._settle()
        live = [row for row in self._rows if row is not None]
        if not live or self._cache is None:
            return []
        # the rows that fill up the step feed some token at position 0; their result is thrown away
        kept = tiled(len(live), ROW_TILE)
        blank = next((rows for rows in self._counts if rows >= kept), kept) - len(live)
        ids_B = torch.tensor([row.token_ids[-1] for row in live] + [live[0].token_ids[-1]] * blank)
        positions_B = torch.tensor([row.length - 1 for row in live] + [0] * blank).to(self._device)
        step = Step(positions_R=positions_B[:kept], capacity=self._cache.capacity)
        with decoding(self._model, step), wide_sums(self._model):
            logits_BV = self._model(
                inputs_embeds=embedded(self._model, ids_B[:, None].to(self._device)),
                position_ids=positions_B[:, None],
                past_key_values=self._cache,
                use_cache=True,
            ).logits[:, -1]
        self._draw(live, logits_BV[: len(live)])
        self._rows = [None if row is None or row.stop is not None else row for row in self._rows]
        return [row for row in live if row.stop is not None]

    def clear(self) -> None:
        """Drop every row, and give the memory back."""
        self._rows.clear()
        self._prefixes.clear()
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

    def _place(self, row: Row, pieces: Sequence[Piece]) -> None:
        """Give `row` the first free place, and its prompt's keys and values."""
        if self._cache is None:
            self._cache = RowCache(pieces[0].tables, limit=self._kv_tokens)
        place = self._rows.index(None) if None in self._rows else len(self._rows)
        self._rows[place : place + 1] = [row]
        self._resize()
        for piece in pieces:
            self._cache.place(piece.tables, row=place, start=piece.start)

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


def refuse(request: Request, *, context: int, vocabulary: int) -> None:
    """What cannot be sampled is refused before anything is spent on it.

    Raises:
        UserError: the prompt is empty, foreign to the vocabulary or longer than `context`, or a rule makes no sense.
    """
    prompt, sampling = request.prompt_ids, request.sampling
    if len(prompt) >= context:
        raise UserError(
            f"the prompt has {len(prompt)} tokens, and prompt and reply together may have {context}",
            hint="shorten the role's prompt.md or what it shows, or name a model with a longer context",
        )
    if not prompt or min(prompt) < 0 or max(prompt) >= vocabulary:
        raise UserError(f"the prompt is empty or holds ids outside the vocabulary (0..{vocabulary - 1})")
    if sampling.max_tokens < 1 or not 0 <= sampling.temperature < float("inf") or "" in sampling.stop:
        raise UserError(
            f"cannot sample with max_tokens={sampling.max_tokens}, temperature={sampling.temperature}, "
            f"stop={list(sampling.stop)}",
            hint="max_tokens is at least 1, temperature at least 0, and a stop string is not empty",
        )


def _stopped(token_ids: Sequence[int], stops: Sequence[str], *, tokenizer: Tokenizer) -> bool:
    """Does the decoded reply hold a stop string? Called after every token, so its tail is enough.

    The last token may complete a character whose first bytes came up to three tokens earlier, and tokens may decode
    to nothing: the tail grows until it is long enough in characters. A tail may decode otherwise than the end of
    the whole (a leading space, a run of bytes that begins with half a character), so what is found in it, or is no
    text in it, is looked for in the whole reply.
    """
    if not stops:
        return False
    need = max(map(len, stops)) + _MARGIN
    size = 2 * need
    tail = tokenizer.decode(token_ids[-size:])
    if size < len(token_ids):
        need += len(tokenizer.decode(token_ids[-_UNSETTLED:]))
        while len(tail) < need and size < len(token_ids):
            size *= 2
            tail = tokenizer.decode(token_ids[-size:])
    if "\ufffd" not in tail and not any(stop in tail for stop in stops):
        return False
    whole = tail if size >= len(token_ids) else tokenizer.decode(token_ids)
    return any(stop in whole for stop in stops)
