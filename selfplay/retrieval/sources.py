"""Where documents come from: a folder, a file, rows of JSON, the manual that every Python carries.

What is covered: text, Markdown, reStructuredText and HTML, PDF where `pypdf` is installed, JSON-lines (each row with
`text`, or with `contents` as Search-R1's corpora have it, whose first line is the title), and `python-docs`. Files are
read in pieces twice: for their digest and whether they are text at all, then, where that is new, for their passages.

What is left out is said, with one of `REASONS`, and never guessed at: a file is UTF-8, or UTF-16 or UTF-32 with a
byte-order mark, or it is skipped; a byte 0 makes it binary. Links and names that begin with a dot are not looked at.

Not here: how HTML and PDF become text (`markup`), the standard library's docstrings (`python_docs`), the corpus
(`store`).
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfplay.errors import NotFound, NotReady
from selfplay.retrieval import Document, Skipped
from selfplay.retrieval.markup import html_text, html_title, pdf_text
from selfplay.retrieval.python_docs import python_docs
from selfplay.types import digest

REASONS: Mapping[str, str] = {
    "binary": "it has a byte 0",
    "encoding": "it is not UTF-8, nor UTF-16 or UTF-32 with a byte-order mark",
    "suffix": "nothing reads files of this suffix",
    "unreadable": "the system does not let it be read, or it is damaged",
    "pdf": "pypdf is not installed: pip install pypdf",
    "row": "it is not a JSON object with `text` or `contents`",
    "long": "the row is longer than 64 MB",
    "twice": "a document of that name came before it",
    "empty": "it has no text",
}
"""Why something is left out, and what that means."""

PYTHON_DOCS = "python-docs"
TEXT = frozenset({"", ".txt", ".text", ".md", ".markdown", ".rst", ".tex", ".org"})
HTML = frozenset({".html", ".htm", ".xhtml"})
ROWS = frozenset({".jsonl", ".ndjson"})
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PIECE = 1 << 18
"""Bytes read at a time."""
_HEAD = 8192
"""Characters in which a title is looked for."""
_MAX_ROW = 64_000_000
"""Bytes of the longest row."""
_HEADINGS = (
    re.compile(r"^#[ \t]+(.+?)[ \t#]*$", re.MULTILINE),
    re.compile(r"^(?!.*[=\-~*^#]{4})(\S.*)\n([=\-~*^#])\2{2,}[ \t]*$", re.MULTILINE),
)

Found = Document | Skipped


def name_of(source: str) -> str:
    """What a corpus calls the source: the absolute path, or the word that it is."""
    return source if source == PYTHON_DOCS else _without_surrogates(str(Path(source).expanduser().resolve()))


def label_of(source: str) -> str:
    """What the documents of a source of that name are called by: the last part of its path, as on any other machine."""
    return Path(source).name or source


def documents(source: str) -> Iterator[Found]:
    """All documents of a source and what was left out, in the order of their names.

    Args:
        source: A folder, a file or `python-docs`.

    Raises:
        NotFound: there is no such file or folder.
        NotReady: it is one PDF file, and pypdf is not installed.
    """
    if source == PYTHON_DOCS:
        return python_docs()
    path = Path(source).expanduser().resolve()
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise NotFound(
            f"no file or folder `{source}`",
            hint=f"a source is a folder, a file of text, Markdown, HTML, PDF or JSON-lines, or {PYTHON_DOCS}",
        )
    if path.suffix.lower() == ".pdf" and pdf_text(path) is None:
        raise NotReady(f"a PDF needs pypdf, which is not installed: {path}", hint="pip install pypdf")
    return _file(path, path.name)


def num_files(source: str) -> int | None:
    """Files of a folder, of which most are one document; None for any other source."""
    path = Path(source).expanduser().resolve()
    return sum(1 for _ in _paths(path)) if source != PYTHON_DOCS and path.is_dir() else None


def _folder(folder: Path) -> Iterator[Found]:
    for path in _paths(folder):
        yield from _file(path, path.relative_to(folder).as_posix())


def _paths(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(here, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _file(path: Path, name: str) -> Iterator[Found]:
    suffix, name = path.suffix.lower(), _without_surrogates(name)
    try:
        if suffix in ROWS:
            yield from _rows(path, name)
        elif suffix == ".pdf":
            yield _pdf(path, name)
        elif suffix in TEXT or suffix in HTML:
            yield _text(path, name, html=suffix in HTML)
        else:
            yield Skipped(name=name, reason="suffix", detail=suffix)
    except OSError as error:
        yield Skipped(name=name, reason="unreadable", detail=error.strerror or type(error).__name__)


def _text(path: Path, name: str, *, html: bool) -> Found:
    encoding = _encoding(path)
    hashed, head = hashlib.blake2b(digest_size=16), ""
    try:
        for piece in _decoded(path, encoding):
            if "\0" in piece:
                return Skipped(name=name, reason="binary")
            hashed.update(piece.encode("utf-8", "surrogatepass"))
            head += piece[: _HEAD - len(head)] if len(head) < _HEAD else ""
    except UnicodeError as error:
        binary = encoding == "utf-8" and _has_zero(path)
        return Skipped(name=name, reason="binary" if binary else "encoding", detail="" if binary else str(error)[:200])
    stem = Path(name).stem
    if html:
        return Document(
            id=name,
            title=html_title(head) or stem,
            digest=digest("html", hashed.hexdigest()),
            pieces=lambda: html_text(_decoded(path, encoding)),
        )
    title = next((found.group(1).strip() for form in _HEADINGS if (found := form.search(head))), "")
    marked = path.suffix.lower() not in ("", ".txt", ".text")
    return Document(
        id=name,
        title=title if marked and title else stem,
        digest=hashed.hexdigest(),
        pieces=functools.partial(_decoded, path, encoding),
    )


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(4)
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "utf-8")


def _has_zero(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b"\0" in block for block in iter(lambda: file.read(_PIECE), b""))


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    """The file's text in pieces, with line ends as `\\n`.

    Raises:
        UnicodeError: it is not in that encoding.
    """
    with path.open(encoding=encoding) as file:
        yield from iter(lambda: file.read(_PIECE), "")


def _pdf(path: Path, name: str) -> Found:
    with path.open("rb") as file:
        hashed = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    try:
        text = pdf_text(path)
    except ValueError as error:
        return Skipped(name=name, reason="unreadable", detail=str(error)[:200])
    if text is None:
        return Skipped(name=name, reason="pdf")
    return Document(id=name, title=Path(name).stem, digest=digest("pdf", hashed), pieces=lambda: text)


def _rows(path: Path, name: str) -> Iterator[Found]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_MAX_ROW):
            number += 1
            at = f"{name}:{number}"
            if len(line) == _MAX_ROW and not line.endswith(b"\n"):
                while (rest := file.readline(_MAX_ROW)) and not rest.endswith(b"\n"):
                    pass
                yield Skipped(name=at, reason="long")
            elif line.strip():
                yield _row(line, name=name, at=at)


def _row(line: bytes, *, name: str, at: str) -> Found:
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        return Skipped(name=at, reason="encoding")
    except (ValueError, RecursionError) as error:
        return Skipped(name=at, reason="row", detail=str(error)[:200])
    text, title = _text_of(row)
    if text is None:
        return Skipped(name=at, reason="row")
    own = row.get("id", row.get("_id"))
    key = f"{name}:{own}" if isinstance(own, str | int) and str(own) else at
    text = _without_surrogates(text)
    title = _without_surrogates(title)
    return Document(id=_without_surrogates(key), title=title, digest=digest("row", title, text), pieces=lambda: (text,))


def _text_of(row: Any) -> tuple[str | None, str]:
    if not isinstance(row, dict):
        return None, ""
    given = row.get("title")
    title = given if isinstance(given, str) else ""
    if isinstance(text := row.get("text"), str):
        return text, title
    if not isinstance(contents := row.get("contents"), str):
        return None, ""
    first, _, rest = contents.partition("\n")
    return (contents, title) if title or not rest.strip() else (rest, first.strip().strip('"'))


def _without_surrogates(text: str) -> str:
    """Without halves of a pair, which JSON and names of files can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
