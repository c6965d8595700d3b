"""Stages of the search game in a ledger: a retriever that fails costs tries, not rewards, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from selfplay.events import Interrupt, ignore
from selfplay.games.search.game import SearchGame
from selfplay.ledger import Ledger
from selfplay.retrieval import Hit, RetrievalFailed, Retriever
from selfplay.retrieval.fts import FtsRetriever
from selfplay.rollout import Player
from selfplay.stages import Clock, Played, Pools, attempt, propose
from selfplay.types import Seed
from tests.games.search.ground import corpus, game, scripted

RETRIES = 2


class Flaky:
    """A retriever that fails at the first searches for what holds a word."""

    def __init__(self, inner: Retriever, *, word: str, times: int) -> None:
        self.inner = inner
        self.word = word
        self.times = times

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        if self.word in query and self.times > 0:
            self.times -= 1
            raise RetrievalFailed("the retriever is down", hint="is it up?")
        return await self.inner.search(query, k=k)

    async def aclose(self) -> None:
        await self.inner.aclose()


def reply(prompt: str) -> str:
    """A proposer searches for its answer and asks; a solver of question N answers what stands in it, or searches."""
    if "The answer: " in prompt:
        answer = prompt.rpartition("The answer: ")[2].partition("\n")[0]
        if "<information>\n" in prompt:
            return f"<question>Which words stand for these {len(answer)} letters in the text that was seen?</question>"
        return f"<search>{answer}</search>"
    if "<information>\n" in prompt:
        return "<answer>nobody</answer>"
    return "<search>question</search>"


def play(folder: Path, *, word: str, times: int) -> tuple[list[Played], list[Played], Ledger]:
    async def main(ledger: Ledger, one: SearchGame) -> tuple[list[Played], list[Played]]:
        seeds: list[Seed] = [seed for seed in await one.seeds() if seed.split == "train"][:3]
        ledger.append(*await one.seeds())
        pools = Pools(
            ledger=ledger,
            player=Player(policy=scripted(reply), config_digest="c", seed=0),
            observe=ignore,
            interrupt=Interrupt(),
            clock=Clock(),
            rows=asyncio.Semaphore(8),
            workers=asyncio.Semaphore(2),
            retries=RETRIES,
        )
        proposals = await propose(pools, one, seeds, step=0, count=2)
        tasks = list({made.task.id: made.task for made in proposals if made.task is not None}.values())
        return proposals, await attempt(pools, one, tasks, step=0, count=2)

    async def whole(ledger: Ledger) -> tuple[list[Played], list[Played]]:
        one = game(retriever=Flaky(FtsRetriever("small"), word=word, times=times), held_out=0.2)
        try:
            return await main(ledger, one)
        finally:
            await one.aclose()

    with Ledger.create(folder, config_digest="c", config={}, seed=0, game="search") as ledger:
        proposals, attempts = asyncio.run(whole(ledger))
    return proposals, attempts, Ledger.read(folder)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    return corpus(tmp_path / "texts")


def test_copies_share_a_task_and_all_are_judged(tmp_path: Path) -> None:
    proposals, attempts, ledger = play(tmp_path / "run", word="never", times=0)
    with ledger:
        assert [made.verdict.reason for made in proposals] == ["valid"] * 6
        assert len({made.task.id for made in proposals if made.task is not None}) == 3
        assert [one.verdict.reason for one in attempts] == ["wrong"] * 6
        assert not ledger.faults()


def test_a_failing_retriever_is_tried_again_and_the_run_goes_on(tmp_path: Path) -> None:
    proposals, attempts, ledger = play(tmp_path / "run", word="question", times=1)
    with ledger:
        assert all(one.verdict.reward == -1.0 for one in attempts)
        (fault,) = ledger.faults()
        assert "is down" in str(fault)
        assert len(proposals) == 6


def test_a_retriever_that_stays_down_gives_no_reward(tmp_path: Path) -> None:
    proposals, attempts, ledger = play(tmp_path / "run", word="question", times=1 + RETRIES)
    with ledger:
        faulty = [one for one in attempts if one.verdict.fault is not None]
        assert len(faulty) <= 1
        assert all(one.verdict.reward is None for one in faulty)
        assert len([one for one in attempts if one.verdict.reward == -1.0]) >= 5
        assert all(made.verdict.valid for made in proposals)
        assert ledger.faults()
