"""The ground of a search game: a corpus, its answers and its retriever, opened when they are first asked for, once.

What is covered: a corpus by name; `python-docs`, which every Python carries, is made where it is not there; whatever
retriever the run names. What is not: how any of it is done (`retrieval`, `answers`).

Example:
    >>> opening = Opening("python-docs", count=200)  # doctest: +SKIP
    >>> (await opening.opened()).answers[0].text  # doctest: +SKIP
    'lru_cache'
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from selfplay.errors import Held
from selfplay.games.search.answers import answers
from selfplay.games.search.records import Answer
from selfplay.retrieval import Passage, RetrievalFailed, Retriever
from selfplay.retrieval.choosing import retriever_of
from selfplay.retrieval.sources import PYTHON_DOCS, documents, name_of
from selfplay.retrieval.store import Corpus, is_written, path_of, raw, said, wants_making
from selfplay.retrieval.writing import add
from selfplay.tools.searching import SECONDS, Guarded
from selfplay.types import record

Say = Callable[[str], None]
"""Told what is waited for."""

MAKING_SECONDS = 120.0
"""Longest that another process, which makes the same corpus, is waited for."""
_AGAIN_SECONDS = 0.5


@record
class Opened:
    """A corpus that is played on."""

    corpus: str
    digest: str
    answers: tuple[Answer, ...]
    retriever: Guarded


class Opening:
    """A corpus, opened when it is first asked for, once."""

    def __init__(
        self,
        corpus: str,
        *,
        count: int,
        retriever: Retriever | str = "",
        seconds: float = SECONDS,
        say: Say = lambda words: None,
    ) -> None:
        """Nothing is read yet.

        Args:
            corpus: Its name.
            count: Most answers.
            retriever: Owned from now on; or the name of one (`retrieval.choosing`), made when the corpus is opened.
            seconds: Longest that one query may take.
            say: Told what is waited for.
        """
        self.corpus = corpus
        self._count = count
        self._retriever = retriever
        self._seconds = seconds
        self._say = say
        self._lock = asyncio.Lock()
        self._opened: Opened | None = None

    async def opened(self) -> Opened:
        """The corpus.

        Raises:
            NotFound: there is no corpus of that name.
            UserError: it is of another version, or holds no passage, or nothing to ask for.
            NotReady, RunFailed: it cannot be read or made.
            Held: another process has been making it for `MAKING_SECONDS`.
        """
        async with self._lock:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def _open(self) -> Opened:
        if self.corpus == PYTHON_DOCS:
            await self._made()
        inner = self._retriever
        if isinstance(inner, str):
            self._say(f"the retriever {inner or 'words'} of the corpus {self.corpus}")
            inner = await retriever_of(inner, corpus=self.corpus, seconds=self._seconds)
        self._say(f"answers in the corpus {self.corpus}")
        try:
            digest, found = await asyncio.to_thread(self._look)
        except BaseException:
            await inner.aclose()
            raise
        return Opened(corpus=self.corpus, digest=digest, answers=found, retriever=Guarded(inner, seconds=self._seconds))

    async def _made(self) -> None:
        """Make `python-docs` where it is not there; where another process is making it, that one is waited for."""
        until = time.monotonic() + MAKING_SECONDS
        path, waits = path_of(PYTHON_DOCS), False
        while True:
            # note: whoever waits does not try to write, which would make it once more as soon as the other is done.
            if waits and time.monotonic() < until and is_written(path):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            try:
                if wants_making(path):
                    self._say("the corpus python-docs, which is made once")
                    await asyncio.to_thread(add, PYTHON_DOCS, name_of(PYTHON_DOCS), documents(PYTHON_DOCS))
                return
            except Held:
                if time.monotonic() > until:
                    raise
            self._say("the corpus python-docs, which another process is making")
            waits = True

    def _look(self) -> tuple[str, tuple[Answer, ...]]:
        with closing(Corpus(self.corpus)) as corpus:
            return corpus.info().digest, answers(corpus, count=self._count)

    async def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """The corpus's passages of these ids.

        Raises:
            RetrievalFailed: there is no such passage, or the corpus does not answer.
        """
        return await asyncio.to_thread(self._passages, ids)

    def _passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        with closing(Corpus(self.corpus)) as corpus, said(corpus.path):
            rows = []
            for name in ids:
                row = corpus.connection.execute("SELECT rowid FROM passages WHERE id = ?", (raw(name),)).fetchone()
                if row is None:
                    raise RetrievalFailed(f"the corpus `{self.corpus}` has no passage {name} any more")
                rows.append(row[0])
            return dict(zip(ids, corpus.passages(rows), strict=True))

    async def aclose(self) -> None:
        """Let go of the retriever; more than once does no harm."""
        if self._opened is not None:
            await self._opened.retriever.aclose()
        elif not isinstance(self._retriever, str):
            await self._retriever.aclose()
