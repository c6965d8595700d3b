"""Corpora that nobody would choose: empty, one giant document, a thousand copies; readers and judges on top of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.games.search.masked import examples
from selfplay.games.search.records import AskFailed, Said
from selfplay.retrieval import Passage
from selfplay.types import Example, Seed, Verdict
from tests.games.search.ground import NO_CHECKS, TEXTS, corpus, game, played, role, seed_of

GIANT = " ".join(
    f"The mill number {number} was sold by Ada Miller{number} to the town in {1500 + number % 500} after a fire."
    for number in range(12_000)
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))


def seeds_of(name: str) -> Sequence[Seed]:
    async def main() -> Sequence[Seed]:
        one = game(name)
        try:
            return await one.seeds()
        finally:
            await one.aclose()

    return asyncio.run(main())


def test_documents_without_text_are_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="have no text"):
        corpus(tmp_path / "texts", {"a": "  \n", "b": ""})


def test_one_giant_document_gives_as_many_answers_as_any_other(tmp_path: Path) -> None:
    corpus(tmp_path / "texts", {"giant": GIANT})
    seeds = seeds_of("small")
    assert len(seeds) == 3
    assert len({seed.split for seed in seeds}) == 1


def test_copies_by_the_thousand_are_one_text(tmp_path: Path) -> None:
    corpus(tmp_path / "texts", {**TEXTS, **{f"copy {number}": TEXTS["eiffel"] for number in range(1000)}})
    answers = [seed.payload["answer"] for seed in seeds_of("small")]
    assert len(answers) == len(set(answers)) > 3


def test_passages_that_are_all_the_same_still_make_examples() -> None:

    copies = [Passage(id="p", text=TEXTS["eiffel"], title="T", document="d")] * 1000
    made: list[Example] = examples(
        copies,
        role=role("search_solver_short"),
        view=lambda question, given: {"question": question, "passages": len(given), "hint": ""},
        seed=0,
        first=0,
        count=3,
    )
    assert len(made) == 3


class Says:
    """Says the same to everybody, or breaks."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    async def ask(self, prompt: str, *, key: str) -> Said:
        if self.text is None:
            raise AskFailed("the judge is down")
        return Said(text=self.text, tokens=1, seconds=0.0)


@pytest.mark.parametrize("text", ["", "Correct? It may be.", "<html>502 Bad Gateway</html>", None])
def test_a_judge_that_dies_or_talks_pays_nobody(tmp_path: Path, text: str | None) -> None:
    corpus(tmp_path / "texts")

    async def main() -> tuple[Verdict, Verdict]:
        one = game(tools=False, options=replace(NO_CHECKS, judge=True), asks=Says(text))
        try:
            task = await one.given(await seed_of(one, "Gustave Eiffel"))
            assert task is not None
            wrong = await one.judge(await played(one, task, ["Otis"]), task)
            return wrong, await one.judge(await played(one, task, ["Gustave Eiffel"]), task)
        finally:
            await one.aclose()

    wrong, right = asyncio.run(main())
    assert (wrong.reward, wrong.passed, wrong.reason) == (None, None, "fault")
    assert wrong.fault is not None
    assert right.reward == 1.0
