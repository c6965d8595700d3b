"""`selfplay corpus add | ls | search`: the documents that games of search are played on.

Not here: how any of it is done (`retrieval`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.retrieval import Hit
    from selfplay.retrieval.writing import Added

TELL_SECONDS = 2.0
"""Between two lines of progress."""
EXCERPT = 300
"""Characters of a passage that people are shown."""
_RETRIEVERS = "words, tantivy or dense (extras), dense:MODEL, a server's address; several with + between them."


@click.group("corpus", short_help="Documents to search in: add, list, search.")
@click.help_option("-h", "--help")
def command() -> None:
    """Documents to search in: add, list, search.

    \b
    Examples:
      selfplay corpus add python python-docs
      selfplay corpus ls
      selfplay corpus search python "least recently used"
    """


@command.command("add", short_help="Take a folder's or a file's documents into a corpus.")
@click.argument("name")
@click.argument("source")
@common
def add(session: Session, *, name: str, source: str) -> None:
    """Take the documents of SOURCE into the corpus NAME, which is made where there is none.

    SOURCE is a folder or a file (text, Markdown, reStructuredText, HTML, PDF with
    pypdf, JSON-lines), or python-docs: what this Python says of itself. Added
    again, only what changed is read; what is gone from SOURCE goes.

    \b
    Examples:
      selfplay corpus add python python-docs
      selfplay corpus add notes ~/notes
      selfplay corpus add wiki wiki-18.jsonl --json
    """
    from selfplay.retrieval.sources import documents, name_of, num_files
    from selfplay.retrieval.writing import add as write

    found = documents(source)
    with _telling(session, num_files(source)) as tell:
        added = write(name, name_of(source), found, tell=tell)
    if session.json:
        session.answer("corpus", {"command": "add", "corpus": name, **dataclasses.asdict(added)})
        return
    _say_skipped(session, added)
    _print_added(session, name, added)
    session.say(f"  look      selfplay corpus search {name} WORDS")
    session.say(f"  play      selfplay run search-quickstart -s game.corpus={name} --name {name}")


@command.command("ls", short_help="Every corpus, and what it holds.")
@common
def ls(session: Session) -> None:
    """Every corpus, what it holds and where it lies.

    \b
    Examples:
      selfplay corpus ls
      selfplay corpus ls --json
    """
    from selfplay.errors import SelfplayError
    from selfplay.retrieval.store import Corpus, folder, names

    rows: list[dict[str, Any]] = []
    silent: dict[str, str] = {}
    for name in names():
        try:
            corpus = Corpus(name)
        except SelfplayError as error:
            silent[name] = f"{error.message}. {error.hint}"
            continue
        try:
            info = corpus.info()
        finally:
            corpus.close()
        rows.append({**dataclasses.asdict(info), "path": str(info.path)})
    if session.json:
        session.answer("corpus", {"command": "ls", "corpora": rows, "silent": silent})
        return
    session.say_silent(silent)
    if rows:
        _print_corpora(session, rows)
    else:
        session.say(f"no corpus is in {folder()}: selfplay corpus add NAME SOURCE")


@command.command("search", short_help="The passages that answer a query best.")
@click.argument("name")
@click.argument("query")
@click.option("-k", "k", default=3, show_default=True, type=click.IntRange(min=1, max=1000), help="Passages at most.")
@click.option("--retriever", "how", default="words", show_default=True, metavar="WHAT", help=_RETRIEVERS)
@common
def search(session: Session, *, name: str, query: str, k: int, how: str) -> None:
    """The passages of the corpus NAME that answer QUERY best, by their words or by another retriever.

    \b
    Examples:
      selfplay corpus search python "least recently used"
      selfplay corpus search python 'groupby OR "' -k 1 --json
      selfplay corpus search python "remember results" --retriever words+dense
    """
    found, seconds = asyncio.run(_search(name, query, k, how))
    if session.json:
        hits = [{**dataclasses.asdict(hit.passage), "score": hit.score} for hit in found]
        session.answer(
            "corpus", {"command": "search", "corpus": name, "query": query, "hits": hits, "seconds": seconds}
        )
        return
    if not found:
        session.say(f"nothing in `{name}` has a word of that query")
        return
    _print_hits(session, found)


async def _search(name: str, query: str, k: int, how: str) -> tuple[Sequence[Hit], float]:
    from selfplay.retrieval.choosing import retriever_of

    retriever = await retriever_of(how, corpus=name)
    try:
        began = time.monotonic()
        return await retriever.search(query, k=k), time.monotonic() - began
    finally:
        await retriever.aclose()


@contextlib.contextmanager
def _telling(session: Session, num_files: int | None) -> Iterator[Callable[[int, int], None]]:
    """What is told the documents seen and the passages added: a bar on a terminal, lines elsewhere."""
    console = session.console(stderr=True)
    if not console.is_terminal:
        yield _in_lines(session)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=num_files)

        def tell(documents: int, passages: int) -> None:
            # note: a file of rows holds many documents; then nobody knows how many there are.
            total = num_files if num_files is not None and documents <= num_files else None
            words = f"{documents:,} documents seen, {passages:,} new passages"
            bar.update(task, completed=documents, total=total, description=words)

        yield tell


def _in_lines(session: Session) -> Callable[[int, int], None]:
    last = time.monotonic()

    def tell(documents: int, passages: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_SECONDS:
            last = time.monotonic()
            session.say(f"{documents:,} documents seen, {passages:,} new passages")

    return tell


def _say_skipped(session: Session, added: Added) -> None:
    from selfplay.retrieval.sources import REASONS
    from selfplay.views.words import clean

    for reason, count in added.skipped.items():
        first = next((one.name for one in added.examples if one.reason == reason), "")
        example = f", for example {clean(first)}" if first else ""
        session.say(f"left out: {count} {reason} ({REASONS[reason]}){example}")


def _print_added(session: Session, name: str, added: Added) -> None:
    from selfplay.views.words import duration, plural

    words = [f"{getattr(added, what)} {what}" for what in ("new", "changed", "unchanged", "removed")]
    session.console().print(
        f"{name}: {plural(added.documents, 'document')} ({', '.join(words)}), "
        f"{plural(added.passages, 'new passage')}, {duration(added.seconds)}",
        markup=False,
    )


def _print_corpora(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from selfplay.views.words import clean, size

    table = Table(box=None, pad_edge=False, header_style="bold")
    for word in ("corpus", "documents", "passages", "size", "sources"):
        table.add_column(word, justify="right" if word in ("documents", "passages", "size") else "left")
    for row in rows:
        sources = Text(clean(", ".join(row["sources"])))
        table.add_row(row["name"], f"{row['documents']:,}", f"{row['passages']:,}", size(row["num_bytes"]), sources)
    session.console().print(table)


def _print_hits(session: Session, hits: Sequence[Hit]) -> None:
    from selfplay.views.words import clean

    console = session.console()
    for rank, hit in enumerate(hits, start=1):
        passage = hit.passage
        text = " ".join(passage.text.split())
        more = f", {passage.places} places" if passage.places > 1 else ""
        console.print(clean(f"{rank}. {passage.title}  ({hit.score:.1f})"), style="bold", markup=False)
        console.print(clean(text[:EXCERPT] + ("…" if len(text) > EXCERPT else "")), markup=False)
        console.print(clean(f"{passage.document} {passage.start}-{passage.end}{more}"), style="dim", markup=False)
