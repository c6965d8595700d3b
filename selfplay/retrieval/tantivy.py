"""Answers queries by their words, faster: an index of tantivy's beside the corpus (extra `tantivy`).

How: the words that `fts` sees (case and accents folded, English endings cut), any of which a passage may hold, ordered
by BM25 (k1 = 1.2, b = 0.75), a word of the title counting three times. Nothing is dropped: an OR of frequent words
costs tantivy milliseconds where FTS5 takes hundreds. Equal scores are ordered by the passage's id.

Not here: where the index lies and when it is made (`beside`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfplay.errors import UserError
from selfplay.retrieval import Hit, RetrievalFailed
from selfplay.retrieval.beside import Beside, every, library
from selfplay.retrieval.store import Corpus
from selfplay.retrieval.words import indexed, terms

TITLE_WEIGHT = 3
"""How often the title stands before the text: as a field of its own, in which every word is rare, it would drown it."""
EXTRA = "tantivy"
_KIND = "tantivy-1"
"""Of this index: another one, another number."""
_WORDS = "selfplay"
"""Name of the analysis."""
_HEAP = 128_000_000
"""Bytes of the writer's buffer."""
_LONGEST = 128
_TIES = 16


class TantivyRetriever:
    """Words in a corpus; queries run in threads."""

    def __init__(self, name: str) -> None:
        """Open the corpus `name`; its index is made where it is not there.

        Raises:
            NotFound, RunFailed, UserError: as `Beside`.
            NotReady: tantivy is not installed, or the index cannot be written.
        """
        self._library = library("tantivy", extra=EXTRA)
        self._words = _analysis(self._library)
        self._beside = Beside(name, _KIND, self._make)
        index = self._library.Index.open(str(self._beside.path))
        self._schema, self._searcher = index.schema, index.searcher()

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first; see `Retriever`.

        Raises:
            UserError: `k` is below 1.
            RetrievalFailed: the index broke, or the corpus is another now.
        """
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least one passage")
        return await asyncio.to_thread(self._search, query, k)

    async def aclose(self) -> None:
        """Close the corpus."""
        self._beside.close()

    def _search(self, query: str, k: int) -> list[Hit]:
        asked = self._query(query)
        if asked is None:
            return []
        try:
            found = self._best(asked, k)
        except ValueError as error:
            raise RetrievalFailed(f"tantivy did not answer: {error}") from error
        passages = self._beside.passages([one for _, one in found])
        return [Hit(passage=passage, score=score) for passage, (score, _) in zip(passages, found, strict=True)]

    def _best(self, asked: Any, k: int) -> list[tuple[float, str]]:
        """Scores and ids, the best first."""
        limit = k + _TIES
        while True:
            hits = self._searcher.search(asked, limit=limit, count=False).hits
            # note: tantivy orders equal scores by where they lie; behind the last one others may tie with the k-th
            if len(hits) < limit or hits[-1][0] < hits[k - 1][0]:
                break
            limit *= 4
        rows = [(float(score), str(self._searcher.doc(address)["id"][0])) for score, address in hits]
        return sorted(rows, key=lambda row: (-row[0], row[1]))[:k]

    def _query(self, query: str) -> Any:
        """Any of the query's words; None where it has none."""
        kind, should = self._library.Query, self._library.Occur.Should
        parts: list[tuple[Any, Any]] = []
        for term in terms(query):
            words = self._words.analyze(term)
            if len(words) == 1:
                parts.append((should, kind.term_query(self._schema, "text", words[0])))
            elif words:
                parts.append((should, kind.phrase_query(self._schema, "text", words)))
        return kind.boolean_query(parts) if parts else None

    def _make(self, corpus: Corpus, place: Path) -> None:
        builder = self._library.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("text", tokenizer_name=_WORDS)
        index = self._library.Index(builder.build(), path=str(place))
        index.register_tokenizer(_WORDS, self._words)
        writer = index.writer(heap_size=_HEAP, num_threads=1)
        for found, title, text in every(corpus):
            whole = indexed("\n".join((*[title] * TITLE_WEIGHT, text)))
            writer.add_document(self._library.Document(id=found, text=whole))
        writer.commit()
        writer.wait_merging_threads()


def _analysis(library: Any) -> Any:
    kind, builder = library.Filter, library.TextAnalyzerBuilder(library.Tokenizer.simple())
    for one in (kind.remove_long(_LONGEST), kind.lowercase(), kind.ascii_fold(), kind.stemmer("English")):
        builder = builder.filter(one)
    return builder.build()
