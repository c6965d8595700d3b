"""Several retrievers as one: reciprocal rank fusion.

A passage scores the sum of 1 / (60 + its rank) over the retrievers that found it, ranks from 1 (Cormack, Clarke and
Büttcher, SIGIR 2009): only ranks count, since scores of different retrievers are not comparable. The same id is the
same passage; it is given as the first retriever that found it has it.

All are asked at once, and one that fails fails the search: an answer without it would be another answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from selfplay.errors import UserError
from selfplay.retrieval import Hit, Passage, Retriever

CONSTANT = 60
"""Of the paper: how little the first ranks stand out."""
DEPTH = 20
"""Hits that each is asked for, where fewer are wanted."""


class FusedRetriever:
    """Asks several retrievers, and owns them."""

    def __init__(self, *retrievers: Retriever) -> None:
        if not retrievers:
            raise UserError("nothing to fuse", hint="name at least one retriever")
        self._retrievers = retrievers

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first; see `Retriever`.

        Raises:
            UserError: `k` is below 1.
            SelfplayError: whatever the first retriever that failed raised.
        """
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least one passage")
        asked = [asyncio.ensure_future(one.search(query, k=max(k, DEPTH))) for one in self._retrievers]
        try:
            answers = await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()
        scores: dict[str, float] = {}
        passages: dict[str, Passage] = {}
        for hits in answers:
            for rank, hit in enumerate(hits, start=1):
                passages.setdefault(hit.passage.id, hit.passage)
                scores[hit.passage.id] = scores.get(hit.passage.id, 0.0) + 1 / (CONSTANT + rank)
        order = sorted(scores, key=lambda one: (-scores[one], one))
        return [Hit(passage=passages[one], score=scores[one]) for one in order[:k]]

    async def aclose(self) -> None:
        """Close all of them."""
        await asyncio.gather(*(one.aclose() for one in self._retrievers))
