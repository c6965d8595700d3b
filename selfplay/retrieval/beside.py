"""Indexes that lie beside a corpus: made of it when they are first asked for, and again where it has changed.

What is covered: where such an index lies (`NAME.KIND/DIGEST` beside `NAME.db`), that it is there whole or not at all,
that those of an earlier content go, and what a killed process had begun; the passages of its hits, which are the
corpus's. A corpus that changes while it is searched fails the search: the index would say one thing and the corpus
another.

Not here: what lies in an index (`tantivy`, `dense`).
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from selfplay.errors import NotReady
from selfplay.owner import Owner
from selfplay.retrieval import Passage, RetrievalFailed
from selfplay.retrieval.store import Corpus, empty, folder, raw, said

_MAKING = ".making-"


def library(module: str, *, extra: str) -> Any:
    """An optional package.

    Raises:
        NotReady: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotReady(
            f"the package `{module}` is not installed ({error})", hint=f"pip install 'selfplay-curriculum[{extra}]'"
        ) from error


class Beside:
    """A corpus with an index of some kind beside it; may be asked from several threads."""

    def __init__(self, name: str, kind: str, make: Callable[[Corpus, Path], None]) -> None:
        """Open the corpus, and make the index where it is not there.

        Args:
            name: The corpus's.
            kind: Names the index's folder, with all that its content depends on beside the corpus.
            make: Writes the index into an empty folder.

        Raises:
            NotFound, RunFailed: as `Corpus`.
            UserError: its version is another, or it holds no passage.
            NotReady: the index cannot be written.
        """
        self.name = name
        self._corpus = Corpus(name)
        self._lock = threading.Lock()
        try:
            self._digest = self._now()
            if not self._digest or not self._corpus.info().passages:
                raise empty(name)
            self.path = self._ready(kind, make)
        except BaseException:
            self._corpus.close()
            raise

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The corpus's passages of these ids, in that order.

        Raises:
            RetrievalFailed: the corpus is another now.
        """
        with self._lock, said(self._corpus.path):
            if self._now() != self._digest:
                raise RetrievalFailed(
                    f"the corpus `{self.name}` was changed while it was searched", hint="the same command again"
                )
            ask = self._corpus.connection.execute
            rows = [ask("SELECT rowid FROM passages WHERE id = ?", (raw(one),)).fetchone()[0] for one in ids]
            return self._corpus.passages(rows)

    def close(self) -> None:
        """Let go of the corpus; more than once does no harm."""
        with self._lock:
            self._corpus.close()

    def _now(self) -> str:
        with said(self._corpus.path):
            row = self._corpus.connection.execute("SELECT value FROM facts WHERE name = 'digest'").fetchone()
            return str(row[0]) if row else ""

    def _ready(self, kind: str, make: Callable[[Corpus, Path], None]) -> Path:
        own = folder() / f"{self.name}.{kind}"
        place = own / self._digest
        _sweep(own)
        if place.is_dir():
            return place
        try:
            own.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=own, prefix=f"{_MAKING}{Owner.here()}-"))
            try:
                make(self._corpus, aside)
                try:
                    os.replace(aside, place)
                except OSError:
                    # note: another process was faster, and made the same.
                    if not place.is_dir():
                        raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise NotReady(f"{own} cannot be written ({error})", hint="df; or set SELFPLAY_CACHE") from error
        for old in own.iterdir():
            if old != place and not old.name.startswith("."):
                shutil.rmtree(old, ignore_errors=True)
        return place


def _sweep(own: Path) -> None:
    """Remove what processes that are gone had begun to make."""
    for aside in own.glob(f"{_MAKING}*-*"):
        owner = Owner.parse(aside.name.removeprefix(_MAKING).rpartition("-")[0])
        if owner is not None and owner.dead():
            shutil.rmtree(aside, ignore_errors=True)


def every(corpus: Corpus) -> Iterator[tuple[str, str, str]]:
    """(id, title, text) of every passage, by id."""
    query = "SELECT p.id, d.title, p.text FROM passages p JOIN documents d ON d.id = p.document ORDER BY p.id"
    with said(corpus.path):
        for found, title, text in corpus.connection.execute(query):
            yield found.hex(), title, text
