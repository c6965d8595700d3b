"""How a corpus comes to hold what a source has.

What is covered: `add` makes a corpus's part of a source equal to that source. What did not change is left alone, a
changed document's passages are replaced, a document that is gone goes; a text in a thousand documents is one passage
with a thousand places. It is one transaction: readers see a corpus as it was before or after, and a killed `add` leaves
nothing behind. What a corpus answers does not depend on the order in which sources were added, nor on where they lie: a
document goes by the last part of its source's path. Of two documents of one name (two folders `docs`) the one with the
smaller digest comes first.

Not here: reading (`store`), sources (`sources`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from selfplay.errors import NotReady, UserError
from selfplay.retrieval import Document, Skipped
from selfplay.retrieval.passages import cut
from selfplay.retrieval.sources import label_of
from selfplay.retrieval.store import APPLICATION_ID, TEXTS, VERSION, check, connect, path_of, raw, said
from selfplay.retrieval.words import indexed
from selfplay.types import digest, record

EXAMPLES = 20
"""Of what was left out, so many are named."""
_TABLES = """
CREATE TABLE documents (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL, digest TEXT NOT NULL,
    UNIQUE (source, name));
CREATE INDEX documents_by_name ON documents (name, digest);
CREATE TABLE passages (
    rowid INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, document INTEGER NOT NULL REFERENCES documents,
    text TEXT NOT NULL);
CREATE TABLE places (
    document INTEGER NOT NULL REFERENCES documents, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
    passage INTEGER NOT NULL REFERENCES passages, PRIMARY KEY (document, start)) WITHOUT ROWID;
CREATE INDEX places_of_passage ON places (passage);
CREATE VIRTUAL TABLE words USING fts5 (
    title, text, content='', tokenize="porter unicode61 remove_diacritics 2");
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@record
class Added:
    """What one `add` came to."""

    source: str
    """As the corpus calls it."""
    documents: int
    """Of the source, in the corpus now."""
    new: int
    changed: int
    unchanged: int
    removed: int
    """Documents that the source no longer has."""
    passages: int
    """New ones."""
    skipped: Mapping[str, int]
    """How many were left out, by reason."""
    examples: Sequence[Skipped]
    """The first of them."""
    seconds: float


def add(
    name: str,
    source: str,
    found: Iterable[Document | Skipped],
    *,
    tell: Callable[[int, int], None] = lambda documents, passages: None,
) -> Added:
    """Make the corpus's part of `source` equal to what is `found` there; the corpus is made where there is none.

    Args:
        name: The corpus's.
        source: What the corpus calls it (`sources.name_of`).
        found: `sources.documents(...)`.
        tell: Called after each document with how many were seen, and how many passages were added.

    Raises:
        UserError: not one document was found (nothing is changed), or the corpus's version is another. An older one
            that holds this source alone is made anew.
        Held: another process is writing it.
        NotReady: the disk is full, or the folder cannot be written.
        RunFailed: the file is damaged or no corpus.
    """
    path = path_of(name)
    began = time.monotonic()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotReady(f"{path.parent} cannot be made: {error.strerror}", hint="set SELFPLAY_CACHE") from error
    waiting, early = _first(source, found)
    with said(path), closing(connect(path, mode="rwc")) as connection:
        _prepare(connection, path, source)
        connection.execute("BEGIN IMMEDIATE")
        try:
            writing = _Writing(connection, source, tell=tell, skipped=early)
            writing.take(waiting)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return writing.added(seconds=time.monotonic() - began)


def _first(source: str, found: Iterable[Document | Skipped]) -> tuple[Iterator[Document | Skipped], list[Skipped]]:
    """All that is found from the first document on, and what was left out before it."""
    early: list[Skipped] = []
    waiting = iter(found)
    for one in waiting:
        if isinstance(one, Skipped):
            early.append(one)
            continue
        return _chain(one, waiting), early
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(one.reason for one in early).items()))
    raise UserError(
        f"no document in {source}" + (f": {len(early)} left out ({counts})" if early else ""),
        hint="files of text (UTF-8), Markdown, reStructuredText, HTML, JSON-lines, and PDF with pypdf, are documents",
    )


def _chain(first: Document, rest: Iterator[Document | Skipped]) -> Iterator[Document | Skipped]:
    yield first
    yield from rest


class _Writing:
    """One `add` under way, inside its transaction."""

    def __init__(
        self, connection: sqlite3.Connection, source: str, *, tell: Callable[[int, int], None], skipped: list[Skipped]
    ) -> None:
        self._connection = connection
        self._ask = connection.execute
        self._source = source
        self._tell = tell
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._examples: list[Skipped] = []
        for one in skipped:
            self._skip(one)

    def take(self, found: Iterator[Document | Skipped]) -> None:
        """Everything that is found, then what is no longer there."""
        before = {
            name: (row, old)
            for row, name, old in self._ask("SELECT id, name, digest FROM documents WHERE source = ?", (self._source,))
        }
        label, seen = label_of(self._source), set[str]()
        for one in found:
            if isinstance(one, Skipped):
                self._skip(one)
                continue
            name = f"{label}:{one.id}"
            if name in seen:
                self._skip(Skipped(name=one.id, reason="twice"))
                continue
            seen.add(name)
            self._document(one, name, before.get(name))
            self._tell(self._counts["documents"], self._counts["passages"])
        for name, (row, _) in before.items():
            if name not in seen:
                self._remove(row)
                self._counts["removed"] += 1
        if not self._ask("SELECT 1 FROM passages").fetchone():
            raise UserError(f"the documents of {self._source} have no text", hint="nothing was added")
        rows = self._ask("SELECT name, digest FROM documents ORDER BY name, digest")
        self._ask("INSERT OR REPLACE INTO facts VALUES ('digest', ?)", (digest_of(rows),))

    def added(self, *, seconds: float) -> Added:
        """What it came to."""
        count = self._counts
        return Added(
            source=self._source,
            documents=count["documents"],
            new=count["new"],
            changed=count["changed"],
            unchanged=count["unchanged"],
            removed=count["removed"],
            passages=count["passages"],
            skipped=dict(sorted(self._skipped.items())),
            examples=tuple(self._examples),
            seconds=seconds,
        )

    def _skip(self, one: Skipped) -> None:
        self._skipped[one.reason] += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(one)

    def _document(self, document: Document, name: str, before: tuple[int, str] | None) -> None:
        value = digest("document", document.title, document.digest)
        if before is not None and before[1] == value:
            self._counts["unchanged"] += 1
            self._counts["documents"] += 1
            return
        if before is not None:
            self._remove(before[0])
        row = self._ask(
            "INSERT INTO documents (name, source, title, digest) VALUES (?, ?, ?, ?)",
            (name, self._source, document.title, value),
        ).lastrowid
        assert row is not None
        places = 0
        try:
            for part in cut(document.pieces()):
                passage = self._passage(row, (name, value), document.title, part.text)
                self._ask("INSERT INTO places VALUES (?, ?, ?, ?)", (row, part.start, part.end, passage))
                places += 1
        except (OSError, UnicodeError) as error:  # it changed, or went, after it was looked at
            self._remove(row)
            self._skip(Skipped(name=document.id, reason="unreadable", detail=type(error).__name__))
            return
        self._counts["new" if before is None else "changed"] += 1
        self._counts["documents"] += 1
        if not places:
            self._skip(Skipped(name=document.id, reason="empty"))

    def _passage(self, document: int, order: tuple[str, str], title: str, text: str) -> int:
        """The row of the passage with that text, which belongs to the first of its documents by name and digest."""
        key = raw(digest("passage", text))
        query = """SELECT p.rowid, d.name, d.digest, d.title FROM passages p JOIN documents d ON d.id = p.document
                   WHERE p.id = ?"""
        known = self._ask(query, (key,)).fetchone()
        if known is None:
            rowid = self._ask(
                "INSERT INTO passages (id, document, text) VALUES (?, ?, ?)", (key, document, text)
            ).lastrowid
            assert rowid is not None
            self._index(rowid, title, text)
            self._counts["passages"] += 1
            return rowid
        rowid, *owner, old = known
        if order < tuple(owner):
            self._give(int(rowid), document, text, old=old, new=title)
        return int(rowid)

    def _give(self, rowid: int, document: int, text: str, *, old: str, new: str) -> None:
        self._ask("UPDATE passages SET document = ? WHERE rowid = ?", (document, rowid))
        if old != new:
            self._unindex(rowid, old, text)
            self._index(rowid, new, text)

    def _remove(self, document: int) -> None:
        """A document; its passages go, or to the next document that holds them."""
        (title,) = self._ask("SELECT title FROM documents WHERE id = ?", (document,)).fetchone()
        held = self._ask("SELECT DISTINCT passage FROM places WHERE document = ?", (document,)).fetchall()
        self._ask("DELETE FROM places WHERE document = ?", (document,))
        heir = """SELECT d.id, d.title FROM places l JOIN documents d ON d.id = l.document WHERE l.passage = ?
                  ORDER BY d.name, d.digest LIMIT 1"""
        for (rowid,) in held:
            owner, text = self._ask("SELECT document, text FROM passages WHERE rowid = ?", (rowid,)).fetchone()
            following = self._ask(heir, (rowid,)).fetchone()
            if following is None:
                self._unindex(rowid, title, text)
                self._ask("DELETE FROM passages WHERE rowid = ?", (rowid,))
            elif owner == document:
                self._give(rowid, following[0], text, old=title, new=following[1])
        self._ask("DELETE FROM documents WHERE id = ?", (document,))

    def _index(self, rowid: int, title: str, text: str) -> None:
        self._ask("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", (rowid, indexed(title), indexed(text)))

    def _unindex(self, rowid: int, title: str, text: str) -> None:
        """Take a passage out of the index, which wants to be told the very words that went in."""
        row = (rowid, indexed(title), indexed(text))
        self._ask("INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)", row)


def digest_of(rows: Iterable[tuple[str, str]]) -> str:
    """`digest("corpus", TEXTS, rows)` of rows that come one after the other: there may be millions."""
    hashed = hashlib.blake2b(f'["corpus",{TEXTS},['.encode(), digest_size=16)
    for number, row in enumerate(rows):
        hashed.update(f"{',' if number else ''}{json.dumps(row, separators=(',', ':'))}".encode())
    hashed.update(b"]]")
    return hashed.hexdigest()


def _prepare(connection: sqlite3.Connection, path: Path, source: str) -> None:
    """Make the tables where the file is new, or older and of this source alone; else check that they are ours."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("BEGIN IMMEDIATE")
    if _is_older(connection) and connection.execute("SELECT DISTINCT source FROM documents").fetchall() == [(source,)]:
        for table in ("words", "places", "passages", "documents", "facts"):
            connection.execute(f"DROP TABLE {table}")
    if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
    check(connection, path)


def _is_older(connection: sqlite3.Connection) -> bool:
    """Is it a corpus, and of an older version?"""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    return bool(application == APPLICATION_ID and version < VERSION)
