"""A corpus and its retrieval: the ground that a search game is played on.

A `Document` comes from a source (`sources`), is cut into passages (`passages`), which lie in one SQLite file a corpus
(`store`). A `Retriever` answers a query with hits: words in that file (`fts`), an index beside it of words (`tantivy`)
or of meaning (`dense`), a server that others run (`remote`), or several of them together (`fusion`); a name stands for
each (`choosing`).

What holds for every retriever: a query is data, whatever characters it has; equal queries over an equal corpus give
equal hits in equal order, ties by passage id; what it fails at is a `RetrievalFailed`, never an empty result, which
means that nothing matches.

Not here: how a policy calls a search (`tools`), what a question is worth (`games`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from selfplay.errors import SelfplayError
from selfplay.types import record


class RetrievalFailed(SelfplayError):
    """A retriever broke, was too slow or answered what it must not: no sample, and nothing about the policy."""

    exit_code = 3
    kind = "fault"


@record
class Document:
    """A text of a source, before it is cut."""

    id: str
    """Its name inside the source: a path, a row's id, `itertools.groupby`."""
    title: str
    digest: str
    """Of its content and title: equal digests need no second look."""
    pieces: Callable[[], Iterable[str]]
    """Its text from the beginning, in pieces of any length, so that it need not fit into memory."""


@record
class Skipped:
    """What a source left out."""

    name: str
    """A path, or a path and a line."""
    reason: str
    """One of `sources.REASONS`."""
    detail: str = ""


@record
class Passage:
    """About 100 words of a document: what is found and read."""

    id: str
    """Digest of the text: the same text is one passage, wherever it lies. A server's own id for a remote one."""
    text: str
    title: str
    """Of the document."""
    document: str
    """`LABEL:DOCUMENT` of the first that holds it, in the order of their names; empty for a remote one."""
    start: int = 0
    """Offset in that document's text, in characters."""
    end: int = 0
    """Offset behind its last character."""
    places: int = 1
    """How often the corpus holds this text."""


@record
class Hit:
    """A passage that answers a query."""

    passage: Passage
    score: float
    """Higher is better; comparable only within one retriever's answer to one query."""


class Retriever(Protocol):
    """Answers queries from a corpus."""

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first, ties in the order of their ids; empty where nothing matches.

        Raises:
            UserError: `k` is below 1.
            RetrievalFailed: it could not look.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections; more than once does no harm."""
        ...
