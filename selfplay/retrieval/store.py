"""A corpus: one SQLite file with documents, their passages, and the index of the words.

What is covered: `Corpus`, which reads one; which corpora there are; what is said where a file is missing, damaged, of
another version, or being written.

Not covered: files of older versions, which are made anew (by `writing`, or a sentence says so); network file systems.

Not here: how a corpus is made (`writing`), queries (`fts`), sources (`sources`).
"""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from selfplay.cache import cache_folder
from selfplay.errors import Held, NotFound, NotReady, RunFailed, UserError
from selfplay.retrieval import Passage, RetrievalFailed
from selfplay.types import record

VERSION = 2
"""Of the tables, and of what a document is called."""
TEXTS = 1
"""Of how texts are cut and words indexed: corpora with one of these are comparable."""
APPLICATION_ID = 0x53504331
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BUSY_SECONDS = 2.0


@record
class Info:
    """What a corpus holds."""

    name: str
    path: Path
    documents: int
    passages: int
    sources: Sequence[str]
    digest: str
    """Of all documents' names, titles and contents: equal digests, equal answers, wherever their folders lie."""
    num_bytes: int


@record
class Place:
    """Where a passage's text lies."""

    document: str
    """`LABEL:DOCUMENT`, the label being the last part of the source's path; of two sources it may be the same."""
    start: int
    end: int


def folder() -> Path:
    """Where corpora lie; not necessarily there yet."""
    return cache_folder() / "corpora"


def path_of(name: str) -> Path:
    """The file of the corpus `name`, which need not be there.

    Raises:
        UserError: no corpus can have that name.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"`{name[:80]}` is no name for a corpus",
            hint="letters, digits, dots, dashes and underscores, at most 64; a source comes second: "
            "selfplay corpus add NAME SOURCE",
        )
    return folder() / f"{name}.db"


def names() -> list[str]:
    """Of all corpora that are there, readable or not."""
    return sorted(path.stem for path in folder().glob("*.db"))


class Corpus:
    """A corpus, to be read; one thread at a time."""

    def __init__(self, name: str) -> None:
        """Open it.

        Raises:
            NotFound: there is none of that name.
            UserError: its version is another, or nothing was ever added.
            RunFailed: the file is damaged or no corpus.
        """
        self.name = name
        self.path = path_of(name)
        if not self.path.is_file():
            raise _no_such(name)
        with said(self.path):
            self.connection = connect(self.path, mode="ro")
            try:
                if not self.connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    raise empty(name)
                check(self.connection, self.path)
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        """Let go of the file; more than once does no harm."""
        self.connection.close()

    def info(self) -> Info:
        """What it holds; reads every document's name."""
        with said(self.path):
            ask = self.connection.execute
            facts = dict(ask("SELECT name, value FROM facts").fetchall())
            sources = [row[0] for row in ask("SELECT DISTINCT source FROM documents ORDER BY source")]
            return Info(
                name=self.name,
                path=self.path,
                documents=ask("SELECT count(*) FROM documents").fetchone()[0],
                passages=ask("SELECT count(*) FROM passages").fetchone()[0],
                sources=sources,
                digest=facts.get("digest", ""),
                num_bytes=self.path.stat().st_size,
            )

    def passages(self, rowids: Sequence[int]) -> list[Passage]:
        """The passages of these rows, in that order."""
        with said(self.path):
            return [self._passage(rowid) for rowid in rowids]

    def places(self, passage_id: str) -> list[Place]:
        """Everywhere a passage's text lies, in the order of the documents' names.

        Raises:
            NotFound: no passage has that id.
        """
        query = """SELECT d.name, l.start, l."end" FROM passages p JOIN places l ON l.passage = p.rowid
                   JOIN documents d ON d.id = l.document WHERE p.id = ? ORDER BY d.name, d.digest, l.start"""
        with said(self.path):
            found = self.connection.execute(query, (raw(passage_id),)).fetchall()
        if not found:
            raise NotFound(f"the corpus `{self.name}` has no passage {passage_id}", hint="ids are those of its hits")
        return [Place(document=name, start=start, end=end) for name, start, end in found]

    def _passage(self, rowid: int) -> Passage:
        query = """SELECT p.id, p.text, d.title, d.name, min(l.start), l."end",
                   (SELECT count(*) FROM places WHERE passage = p.rowid)
                   FROM passages p JOIN documents d ON d.id = p.document
                   JOIN places l ON l.document = p.document AND l.passage = p.rowid WHERE p.rowid = ?"""
        found, text, title, name, start, end, places = self.connection.execute(query, (rowid,)).fetchone()
        return Passage(
            id=found.hex(), text=text, title=title, document=name, start=start, end=end, places=places
        )  # fmt: skip


def raw(hexadecimal: str) -> bytes:
    """A digest as the tables hold it; empty where it is none."""
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return b""


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """A connection to the file, `mode` being SQLite's: `ro`, `rw` or `rwc`."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Is it a corpus of this version?

    Raises:
        RunFailed: it is no corpus.
        UserError: its version is another.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise RunFailed(f"{path} is no corpus", hint=f"move it away: mv {path} {path}.old")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        age = "an older" if version < VERSION else "a newer"
        raise UserError(
            f"the corpus {path} is of {age} selfplay (version {version}, this one reads {VERSION})",
            hint=f"make it anew: rm {path}, then selfplay corpus add {path.stem} SOURCE",
        )


def wants_making(path: Path) -> bool:
    """Is there no corpus yet, or one that nothing was added to, or one of an older version?"""
    if not path.is_file():
        return True
    with said(path), closing(connect(path, mode="ro")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return True
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return ours and (version < VERSION or not connection.execute("SELECT 1 FROM facts").fetchone())


def is_written(path: Path) -> bool:
    """Is another process writing this corpus, which is there, at this moment?"""
    try:
        with said(path), closing(connect(path, mode="rw")) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except Held:
        return True
    return False


def empty(name: str) -> UserError:
    """The error of a corpus without a passage."""
    return UserError(f"the corpus `{name}` holds no passage", hint=f"selfplay corpus add {name} SOURCE")


def _no_such(name: str) -> NotFound:
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
    return NotFound(
        f"no corpus `{name}`",
        hint=(f"did you mean `{near[0]}`? " if near else "")
        + f"All corpora: selfplay corpus ls; a new one: selfplay corpus add {name} SOURCE",
    )


@contextmanager
def said(path: Path) -> Iterator[None]:
    """What SQLite raises, as an error that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Held(
                f"another process is writing the corpus {path.stem}", hint="wait for it, then the same command again"
            ) from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise RunFailed(
                f"{path} is damaged, or no corpus ({error})",
                hint=f"make it anew: rm {path}, then selfplay corpus add {path.stem} SOURCE",
            ) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR):
            raise NotReady(f"{path} cannot be read or written ({error})", hint="df; or set SELFPLAY_CACHE") from error
        raise RetrievalFailed(f"the corpus {path.stem} did not answer: {error}", hint="selfplay corpus ls") from error
