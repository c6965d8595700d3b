"""The solver without a corpus: what it tells itself it found is its own reply, of which the last answer counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from selfplay.games.search.game import SearchGame
from selfplay.rollout import render
from tests.games.search.ground import corpus, game, played, role, seed_of

FOUND = "<think>Paris?</think><search>tower Paris</search><information>The tower is by {}.</information>"


@pytest.fixture(autouse=True)
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    corpus(tmp_path / "texts")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (FOUND.format("Gustave Eiffel") + "<answer>Gustave Eiffel</answer>", "passed"),
        (FOUND.format("Gustave Eiffel") + "<answer>Otis</answer>", "wrong"),
        (FOUND.format("Gustave Eiffel"), "wrong"),
        (FOUND.format("Gustave Eiffel") + "<answer>Gustave Eiffel", "no_answer"),
        (FOUND.format("Gustave Eiffel") + "<answer></answer>", "empty"),
    ],
)
def test_its_last_answer_counts_and_what_it_tells_itself_does_not(reply: str, reason: str) -> None:
    async def check() -> None:
        one: SearchGame = game(tools=False)
        try:
            one.solver = role("search_solver_offline")
            seed = await seed_of(one, "Gustave Eiffel")
            (task,) = [task for task in [await one.given(seed)] if task is not None]
            prompt = render(one.solver, one.solver_view(task))
            assert str(task.payload["question"]) in prompt
            assert not any(row["text"] in prompt for row in task.payload["passages"])
            verdict = await one.judge(await played(one, task, [reply]), task)
            assert verdict.reason == reason, verdict.why
        finally:
            await one.aclose()

    asyncio.run(check())
