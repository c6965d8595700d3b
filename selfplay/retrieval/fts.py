"""Answers queries from a corpus on this machine, by their words (SQLite FTS5).

How: a query's words that no passage has are dropped, and those of more than a tenth of the passages count for little
(never all of them). Passages that hold every word come first, where there are few; then those that hold all but the
frequent ones; where fewer than `k` do, those that hold any of these. Each is ordered by BM25 of all but the frequent
words (Robertson, k1 = 1.2, b = 0.75, as FTS5 has it) with a word of the title counting three times. Equal scores are
ordered by the passage's id.

What a query costs grows with the passages that hold its words, so `any` asks for the rarest words only, as many as
`MAX_ROWS` rows allow, and frequent words, of which BM25 would look at every passage, are looked for in few passages
and not scored.

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
MAX_WHOLE = 1000
"""Where as many passages hold every word, frequent ones included, these say nothing, and are left alone."""
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
        try:
            with said(corpus.path):
                if self._total(corpus) == 0:
                    raise empty(name)
        except BaseException:
            corpus.close()
            raise
        self._idle.put(corpus)

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
        both = " AND ".join(word for word, _ in rare)
        first = self._whole(corpus, words, rare, both, k)
        rows = best(corpus.connection, both, k) if len(first) < k else []
        if len(rows) < k and len(first) < k and len(rare) > 1:
            rows = best(corpus.connection, " OR ".join(_within(rare)), k)
        known = {row for row, _ in first}
        rest = [one for one in rows if one[0] not in known]
        # note: who comes first has a score to say so.
        above = rest[0][1] if rest else 0.0
        rows = [*((row, above + score) for row, score in first), *rest][:k]
        passages = corpus.passages([row for row, _ in rows])
        return [Hit(passage=passage, score=score) for passage, (_, score) in zip(passages, rows, strict=True)]

    def _whole(
        self, corpus: Corpus, words: Sequence[str], rare: Sequence[tuple[str, int]], both: str, k: int
    ) -> list[tuple[int, float]]:
        """The best of the passages that hold every word, where some are frequent and few passages hold them all."""
        frequent = [word for word in words if self._count(corpus, word) and word not in {one for one, _ in rare}]
        if not frequent or rare[0][1] > MAX_ROWS or len(rare) == MAX_TERMS:
            return []
        query = "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?"
        every = " AND ".join((both, *frequent[:MAX_TERMS]))
        found = [row for (row,) in corpus.connection.execute(query, (every, MAX_WHOLE))]
        return best(corpus.connection, both, k, among=found) if 0 < len(found) < MAX_WHOLE else []

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


def best(
    connection: sqlite3.Connection, expression: str, k: int, *, among: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """The rows and scores of the `k` best passages for an expression of FTS5, ties by the passages' ids.

    Only rows `among` these, where there are any.
    """
    # note: with the sign, SQLite looks through what matches; without, it would ask the index again for each row
    only = f"AND +rowid IN ({','.join(map(str, among))})" if among else ""
    weights = f"rank MATCH 'bm25({TITLE_WEIGHT}, 1.0)'"
    query = f"SELECT rowid, -rank FROM words WHERE words MATCH ? AND {weights} {only} ORDER BY rank"
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
