"""What becomes a document, and what is left out and why."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from selfplay.errors import NotFound, NotReady
from selfplay.retrieval import Document, Skipped
from selfplay.retrieval.sources import REASONS, documents


def found(source: Path | str) -> tuple[dict[str, Document], list[Skipped]]:
    every = list(documents(str(source)))
    skipped = [one for one in every if isinstance(one, Skipped)]
    assert {one.reason for one in skipped} <= set(REASONS)
    return {one.id: one for one in every if isinstance(one, Document)}, skipped


def text(one: Document) -> str:
    return "".join(one.pieces())


def test_a_folder_has_documents_of_many_kinds(folder: Path) -> None:
    (folder / "plain.txt").write_text("# no heading\nText.\r\n")
    (folder / "README").write_text("Without a suffix.")
    (folder / "notes.md").write_text("Words.\n\n# The title #\n\nMore.")
    (folder / "manual.rst").write_text("=====\nGuide\n=====\n\nText.")
    inner = folder / "inner"
    inner.mkdir()
    head = "<head><title>A &amp; B</title><style>p{}</style></head>"
    page = f"<html>{head}<body><p>One<p>Two<script>x=1</script> &lt;3</body>"
    (inner / "page.html").write_text(page)
    (folder / ".hidden.txt").write_text("no")
    (inner / "link.txt").symlink_to(folder / "plain.txt")
    got, skipped = found(folder)
    assert [(one.id, one.title) for one in got.values()] == [
        ("README", "README"),
        ("manual.rst", "Guide"),
        ("notes.md", "The title"),
        ("plain.txt", "plain"),
        ("inner/page.html", "A & B"),
    ]
    assert skipped == []
    assert text(got["plain.txt"]) == "# no heading\nText.\n"
    assert text(got["inner/page.html"]).split() == ["One", "Two", "<3"]


def test_binary_files_and_mixed_encodings_are_left_out_and_counted(folder: Path) -> None:
    (folder / "good.txt").write_text("größer", encoding="utf-8")
    (folder / "marked.txt").write_text("größer", encoding="utf-8-sig")
    (folder / "wide.txt").write_text("größer", encoding="utf-16")
    (folder / "latin.txt").write_text("größer", encoding="latin-1")
    (folder / "mixed.txt").write_bytes("größer ".encode() * 100_000 + "größer".encode("latin-1"))
    (folder / "zero.txt").write_bytes(b"text\0text")
    (folder / "program").write_bytes(b"\x7fELF\xff\xfe\0\0")
    (folder / "packed.gz").write_bytes(gzip.compress(b"text"))
    got, skipped = found(folder)
    assert {name: text(one) for name, one in got.items()} == dict.fromkeys(
        ("good.txt", "marked.txt", "wide.txt"), "größer"
    )
    assert len({one.digest for one in got.values()}) == 1
    assert {one.name: one.reason for one in skipped} == {
        "latin.txt": "encoding",
        "mixed.txt": "encoding",
        "zero.txt": "binary",
        "program": "binary",
        "packed.gz": "suffix",
    }


def test_a_name_that_is_no_unicode_does_no_harm(folder: Path) -> None:
    name = os.fsencode(folder) + b"/gr\xf6\xdfe.txt"
    with open(name, "w") as file:
        file.write("words")
    got, _ = found(folder)
    assert list(got) == ["gr??e.txt"]


def test_rows_of_json(folder: Path) -> None:
    rows: Sequence[object] = [
        {"id": 7, "title": "T", "text": "words"},
        {"id": "8", "contents": '"Title"\nthe text'},
        {"contents": "a text without a title"},
        {"text": "half a pair \ud800"},
        {"id": "9"},
        ["no", "object"],
        "text",
    ]
    path = folder / "rows.jsonl"
    path.write_bytes(
        b"\n".join(json.dumps(row).encode() for row in rows) + b'\n\n{"text": "cut\n{"text": "\xff"}\n' + b"[" * 200_000
    )
    got, skipped = found(path)
    assert [(one.id, one.title, text(one)) for one in got.values()] == [
        ("rows.jsonl:7", "T", "words"),
        ("rows.jsonl:8", "Title", "the text"),
        ("rows.jsonl:3", "", "a text without a title"),
        ("rows.jsonl:4", "", "half a pair ?"),
    ]
    assert Counter(one.reason for one in skipped) == {"row": 5, "encoding": 1}


def test_a_row_longer_than_the_limit_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfplay.retrieval.sources._MAX_ROW", 1000)
    path = folder / "rows.jsonl"
    path.write_text(json.dumps({"text": "x" * 5000}) + "\n" + json.dumps({"text": "short"}) + "\n")
    got, skipped = found(path)
    assert list(got) == ["rows.jsonl:2"]
    assert [(one.name, one.reason) for one in skipped] == [("rows.jsonl:1", "long")]


def test_a_pdf_without_the_library_is_an_error_alone_and_left_out_among_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (folder / "paper.pdf").write_bytes(b"%PDF-1.4")
    (folder / "note.txt").write_text("words")
    with pytest.raises(NotReady, match="a PDF needs pypdf") as caught:
        found(folder / "paper.pdf")
    assert caught.value.hint == "pip install pypdf"
    got, skipped = found(folder)
    assert list(got) == ["note.txt"]
    assert [one.reason for one in skipped] == ["pdf"]


def test_a_pdf_is_read_by_its_pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Page:
        def __init__(self, words: str) -> None:
            self.extract_text = lambda: words

    class Reader:
        def __init__(self, path: Path) -> None:
            if b"damaged" in path.read_bytes():
                raise KeyError("/Root")
            self.pages = [Page("first"), Page("second")]

    library = ModuleType("pypdf")
    library.PdfReader = Reader  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pypdf", library)
    (folder / "paper.pdf").write_bytes(b"%PDF-1.4")
    (folder / "worse.pdf").write_bytes(b"damaged")
    got, skipped = found(folder)
    assert text(got["paper.pdf"]).split() == ["first", "second"]
    assert [(one.name, one.reason) for one in skipped] == [("worse.pdf", "unreadable")]


def test_what_is_not_there(folder: Path) -> None:
    with pytest.raises(NotFound, match="no file or folder"):
        found(folder / "none")


def test_python_describes_itself() -> None:
    got, _ = found("python-docs")
    assert "Return a shallow or deep copy" not in text(got["topics/lambda"])
    assert "iterable" in text(got["itertools.groupby"])
    assert "least-recently-used" in text(got["functools.lru_cache"]).lower()
    assert "OrderedDict.popitem" in text(got["collections.OrderedDict"])
    assert not [name for name in got if name.startswith(("test.", "idlelib", "topics/_"))]
    assert len(got) > 2000
