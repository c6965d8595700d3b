"""Answers queries from a corpus on this machine, by their words (SQLite FTS5).

How: a query's words that no passage has, and those of more than a tenth of the passages, are dropped (never all of
them). Passages that hold all the others come first; where fewer than `k` do, those that hold any. Both are ordered by
BM25 (Robertson, k1 = 1.2, b = 0.75, as FTS5 has it) with a word of the title counting three times. Equal scores are
ordered by the passage's id.

What a query costs grows with the passages that hold its words, so `any` asks for the rarest words only, as many as
`MAX_ROWS` rows allow.

Not here: meaning beyond words (`remote` reaches servers that have it).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import Sequence

from selfplay.errors import UserError
from selfplay.retrieval import Hit
from selfplay.retrieval.store import Corpus, empty, said
from selfplay.retrieval.words import terms

TITLE_WEIGHT = 3.0
FREQUENT = 0.1
"""A word of more than this share of the passages says little."""
FEW = 1000
"""A word of at most so many passages is never frequent."""
MAX_TERMS = 32
"""The rarest words of a query that are asked for."""
MAX_ROWS = 40_000
"""Passages that `any` may look at, counted once for each word; the two rarest words are asked for in any case."""
_KNOWN = 50_000
"""Words whose frequency is remembered."""
_TIES = 16


class FtsRetriever:
    """Words in a corpus. Queries run in threads, each with a connection of its own."""

    def __init__(self, name: str) -> None:
        """Open the corpus `name`.

        Raises:
            NotFound, RunFailed: as `Corpus`.
            UserError: its version is another, or it holds no passage.
        """
        self.name = name
        self._idle: queue.SimpleQueue[Corpus] = queue.SimpleQueue()
        self._counts: dict[str, int] = {}
        self._state: tuple[int, str] = (0, "")
        self._closed = False
        corpus = Corpus(name)
        self._idle.put(corpus)
        if self._total(corpus) == 0:
            corpus.close()
            raise empty(name)

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first; see `Retriever`.

        Raises:
            UserError: `k` is below 1.
            NotReady, RunFailed, RetrievalFailed: the file cannot be read, is damaged, or does not answer.
        """
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least one passage")
        return await asyncio.to_thread(self._search, query, k)

    async def aclose(self) -> None:
        """Close the file; a search under way closes its own when it ends."""
        self._closed = True
        while not self._idle.empty():
            self._idle.get().close()

    def _search(self, query: str, k: int) -> list[Hit]:
        try:
            corpus = self._idle.get_nowait()
        except queue.Empty:
            corpus = Corpus(self.name)
        try:
            with said(corpus.path):
                corpus.connection.execute("BEGIN")
                try:
                    return self._found(corpus, terms(query), k)
                finally:
                    corpus.connection.execute("ROLLBACK")
        finally:
            if self._closed:
                corpus.close()
            else:
                self._idle.put(corpus)

    def _found(self, corpus: Corpus, words: Sequence[str], k: int) -> list[Hit]:
        total = self._total(corpus)
        rare = self._rare(corpus, words, total)
        if not rare:
            return []
        rows = best(corpus.connection, " AND ".join(word for word, _ in rare), k)
        if len(rows) < k and len(rare) > 1:
            rows = best(corpus.connection, " OR ".join(_within(rare)), k)
        passages = corpus.passages([row for row, _ in rows])
        return [Hit(passage=passage, score=score) for passage, (_, score) in zip(passages, rows, strict=True)]

    def _total(self, corpus: Corpus) -> int:
        """How many passages there are; what is remembered of words goes where the corpus has changed."""
        row = corpus.connection.execute("SELECT value FROM facts WHERE name = 'digest'").fetchone()
        now = row[0] if row else ""
        if self._state[1] != now:
            total = corpus.connection.execute("SELECT count(*) FROM passages").fetchone()[0]
            self._counts = {}
            self._state = (total, now)
        return self._state[0]

    def _rare(self, corpus: Corpus, words: Sequence[str], total: int) -> list[tuple[str, int]]:
        """The words to ask for and in how many passages they are, the rarest first."""
        found = sorted((self._count(corpus, word), word) for word in words)
        known = [(word, count) for count, word in found if count]
        kept = [(word, count) for word, count in known if count <= max(FEW, FREQUENT * total)]
        return (kept or known[:3])[:MAX_TERMS]

    def _count(self, corpus: Corpus, word: str) -> int:
        count = self._counts.get(word)
        if count is None:
            query = "SELECT count(*) FROM words WHERE words MATCH ?"
            count = int(corpus.connection.execute(query, (word,)).fetchone()[0])
            if len(self._counts) < _KNOWN:
                self._counts[word] = count
        return count


def _within(rare: Sequence[tuple[str, int]]) -> list[str]:
    kept: list[str] = []
    rows = 0
    for word, count in rare:
        rows += count
        if rows > MAX_ROWS and len(kept) >= 2:
            break
        kept.append(word)
    return kept


def best(connection: sqlite3.Connection, expression: str, k: int) -> list[tuple[int, float]]:
    """The rows and scores of the `k` best passages for an expression of FTS5, ties by the passages' ids."""
    query = (
        f"SELECT rowid, -rank FROM words WHERE words MATCH ? AND rank MATCH 'bm25({TITLE_WEIGHT}, 1.0)' ORDER BY rank"
    )
    limit = k + _TIES
    while True:
        rows: list[tuple[int, float]] = connection.execute(f"{query} LIMIT ?", (expression, limit)).fetchall()
        # note: SQLite orders equal scores by rows, which depend on what was added first; as long as the last row ties
        # with the k-th, others that tie may lie behind it
        if len(rows) < limit or rows[-1][1] < rows[k - 1][1]:
            break
        limit *= 4
    tied = [row for row in rows if row[1] >= rows[min(k, len(rows)) - 1][1]] if rows else []
    marks = ",".join("?" * len(tied))
    ids = dict(connection.execute(f"SELECT rowid, id FROM passages WHERE rowid IN ({marks})", [row for row, _ in tied]))
    return sorted(tied, key=lambda row: (-row[1], ids[row[0]]))[:k]
