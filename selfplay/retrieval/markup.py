"""HTML and PDF become text.

What is covered: HTML without its scripts, styles and head, read in pieces, blocks on lines of their own; text as a PDF
has it, page by page, where `pypdf` is installed. Not covered: layout of tables, scanned pages.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

_HIDDEN = frozenset({"script", "style", "head", "template", "noscript", "svg", "nav"})
_BLOCKS = frozenset(
    {"p", "div", "li", "ul", "ol", "dl", "dt", "dd", "table", "tr", "pre", "section", "article", "blockquote", "main"}
    | {f"h{level}" for level in range(1, 7)}
)


class _Text(HTMLParser):
    """Gathers what a reader sees; `head` stays open where a page does not close it, until `body` begins."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[str] = []
        self.title: list[str] = []
        self._hidden: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "body":
            self._hidden.clear()
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        self._in_title = tag == "title" and "svg" not in self._hidden
        if tag in _BLOCKS:
            self.seen.append("\n\n")
        elif tag == "br":
            self.seen.append("\n")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag == "br":
            self.seen.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        if tag in _BLOCKS:
            self.seen.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._hidden:
            self.seen.append(data)


def html_text(pieces: Iterable[str]) -> Iterator[str]:
    """The text of a page that comes in `pieces`."""
    parser = _Text()
    for piece in pieces:
        parser.feed(piece)
        yield "".join(parser.seen)
        parser.seen.clear()
    parser.close()
    yield "".join(parser.seen)


def html_title(head: str) -> str:
    """The title, where the page's first characters hold it; empty otherwise."""
    parser = _Text()
    parser.feed(head)
    return " ".join("".join(parser.title).split())


def pdf_text(path: Path) -> Sequence[str] | None:
    """The text of each page; None where `pypdf` is not installed.

    Raises:
        ValueError: it is no PDF that can be read (damaged, encrypted).
        OSError: the file cannot be read.
    """
    try:
        pypdf = importlib.import_module("pypdf")
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [(page.extract_text() or "") + "\n\n" for page in pypdf.PdfReader(path).pages]
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
