"""A cache of its own for each test, and ways to fill a corpus and ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from selfplay.retrieval import Hit
from selfplay.retrieval.fts import FtsRetriever
from selfplay.retrieval.sources import documents, name_of
from selfplay.retrieval.writing import Added, add


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test puts its documents."""
    made = tmp_path / "documents"
    made.mkdir()
    return made


@pytest.fixture
def take(folder: Path) -> Callable[..., Added]:
    """`take("name")`: the folder's documents into the corpus."""

    def run(name: str = "c", source: Path | None = None) -> Added:
        where = str(source or folder)
        return add(name, name_of(where), documents(where))

    return run


@pytest.fixture
def ask() -> Callable[..., Sequence[Hit]]:
    """`ask("query")`: the hits of the corpus `c`."""

    def run(query: str, *, k: int = 3, name: str = "c") -> Sequence[Hit]:
        async def search() -> Sequence[Hit]:
            retriever = FtsRetriever(name)
            try:
                return await retriever.search(query, k=k)
            finally:
                await retriever.aclose()

        return asyncio.run(search())

    return run
