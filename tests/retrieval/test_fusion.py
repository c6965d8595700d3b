"""Ranks become one order; a retriever that fails is not left out in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from selfplay.errors import UserError
from selfplay.retrieval import Hit, Passage, RetrievalFailed, Retriever
from selfplay.retrieval.fusion import CONSTANT, FusedRetriever


class Fixed:
    """Answers every query with the same ids."""

    def __init__(self, *ids: str, fails: bool = False) -> None:
        self.ids, self.fails, self.closed = ids, fails, False

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        if self.fails:
            raise RetrievalFailed("it broke")
        passages = [Passage(id=one, text=one, title="", document="") for one in self.ids]
        return [Hit(passage=one, score=-rank) for rank, one in enumerate(passages)][:k]

    async def aclose(self) -> None:
        self.closed = True


def search(*retrievers: Retriever, k: int = 9) -> list[tuple[str, float]]:
    hits = asyncio.run(FusedRetriever(*retrievers).search("q", k=k))
    return [(hit.passage.id, hit.score) for hit in hits]


def test_ranks_add_up_and_ties_follow_ids() -> None:
    at = [0.0, *(1 / (CONSTANT + rank) for rank in range(1, 5))]
    assert search(Fixed("b", "a", "c"), Fixed("a", "d")) == [
        ("a", at[1] + at[2]),
        ("b", at[1]),
        ("d", at[2]),
        ("c", at[3]),
    ]
    assert search(Fixed("z", "y"), Fixed("y", "z")) == [("y", at[1] + at[2]), ("z", at[1] + at[2])]
    assert search(Fixed(*"abcdef"), Fixed(), k=2) == [("a", at[1]), ("b", at[2])]


def test_a_failure_is_a_failure() -> None:
    with pytest.raises(RetrievalFailed, match="it broke"):
        search(Fixed("a"), Fixed(fails=True))
    with pytest.raises(UserError):
        search(Fixed("a"), k=0)
    with pytest.raises(UserError):
        FusedRetriever()


def test_all_are_closed() -> None:
    several = [Fixed(), Fixed()]
    asyncio.run(FusedRetriever(*several).aclose())
    assert all(one.closed for one in several)
