"""`selfplay corpus add | ls | search`, typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.retrieval.store import path_of

Typed = tuple[int, str, str]


@pytest.fixture
def notes(here: Path) -> Path:
    folder = here / "notes"
    folder.mkdir()
    (folder / "walrus.md").write_text("# On walruses\n\nThe walrus and the [carpenter] were walking close at hand.\n")
    (folder / "odd.txt").write_text("Copies\x1b[31m red")
    (folder / "photo.png").write_bytes(b"\x89PNG\0")
    return folder


def test_add_list_and_search(notes: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("corpus", "add", "notes", str(notes))
    assert code == 0
    assert err.startswith("left out: 1 suffix (nothing reads files of this suffix), for example photo.png\n")
    assert "selfplay run search-quickstart -s game.corpus=notes --name notes\n" in err
    assert out.startswith("notes: 2 documents (2 new, 0 changed, 0 unchanged, 0 removed), 2 new")
    code, out, _ = typed("corpus", "ls")
    assert code == 0
    assert out.split()[:6] == ["corpus", "documents", "passages", "size", "sources", "notes"]
    code, out, err = typed("corpus", "search", "notes", "carpenter AND (")
    assert (code, err) == (0, "")
    assert out.startswith("1. On walruses  (")
    assert "The walrus and the [carpenter] were" in out
    code, out, _ = typed("corpus", "search", "notes", "red")
    assert "\x1b" not in out
    code, out, err = typed("corpus", "search", "notes", "unicorn")
    assert (code, out, err) == (0, "", "nothing in `notes` has a word of that query\n")


def test_a_terminal_gets_a_bar(notes: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.dumps({"id": str(i), "title": f"T{i}", "text": f"Row number {i} of some."}) for i in range(5)]
    (notes / "rows.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, err = typed("corpus", "add", "notes", str(notes))
    assert code == 0
    assert out.startswith("notes: 7 documents")
    assert "\u2501" in err
    assert "7 documents seen, 7 new passages" in err


def test_answers_in_json(notes: Path, answered: Callable[..., Any], typed: Callable[..., Typed]) -> None:
    added = answered("corpus", "add", "notes", str(notes))
    assert (added["new"], added["passages"], added["skipped"]) == (2, 2, {"suffix": 1})
    assert added["examples"] == [{"name": "photo.png", "reason": "suffix", "detail": ".png"}]
    assert answered("corpus", "add", "notes", str(notes))["unchanged"] == 2
    (row,) = answered("corpus", "ls")["corpora"]
    assert (row["name"], row["documents"], row["sources"]) == ("notes", 2, [str(notes)])
    assert len(row["digest"]) == 32
    (hit,) = answered("corpus", "search", "notes", "walruses", "-k", "1")["hits"]
    assert hit["document"] == "notes:walrus.md"
    assert answered("corpus", "search", "notes", "unicorn")["hits"] == []
    assert answered("corpus", "search", "notes", "walruses", "--retriever", "words")["hits"][0]["id"] == hit["id"]


def test_what_goes_wrong_is_said(notes: Path, typed: Callable[..., Typed]) -> None:
    assert typed("corpus", "ls")[2].startswith("no corpus is in ")
    typed("corpus", "add", "notes", str(notes))
    code, _, err = typed("corpus", "search", "note", "x")
    assert code == 2
    assert "no corpus `note`" in err
    assert "did you mean `notes`?" in err
    code, _, err = typed("corpus", "add", "notes", "nowhere")
    assert code == 2
    assert "no file or folder `nowhere`" in err
    code, out, _ = typed("corpus", "search", "note", "x", "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "not_found"
    assert typed("corpus", "search", "notes", "x", "-k", "0")[0] == 2
    code, _, err = typed("corpus", "search", "notes", "x", "--retriever", "faiss")
    assert code == 2
    assert "`faiss` is no retriever" in err
    path_of("broken").write_text("no database")
    code, out, err = typed("corpus", "ls")
    assert code == 0
    assert "notes" in out
    assert "left out: broken: " in err
