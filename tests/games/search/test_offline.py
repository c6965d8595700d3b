"""The solver without a corpus: what it tells itself it found is its own reply, of which the last answer counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.batches import sample_of
from selfplay.games.search import offline, replies
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


def test_its_warm_up_shows_the_form_with_sentences_of_train_documents() -> None:
    async def check() -> None:
        one: SearchGame = game(tools=False)
        try:
            one.solver = role("search_solver_offline")
            assert offline.writes_its_own(one.solver)
            assert not offline.writes_its_own(role("search_solver_short"))
            assert not offline.writes_its_own(role("search_solver"))
            train = {s.payload["answer"]: s for s in await one.seeds() if s.split == "train"}
            made = one.examples(seed=0, first=0, count=8)
            assert [example.role for example in made].count("search_solver_offline") == 5, "two of three"
            for example in made:
                if example.role != "search_solver_offline":
                    continue
                (reply,) = example.replies
                found = replies.handed(reply, "answer", bare=False)
                assert found.text in train
                told = reply.partition("<information>")[2].partition("</information>")[0]
                assert found.text in told
                assert found.text not in example.prompt
                assert told not in example.prompt
            assert one.examples(seed=0, first=3, count=2) == made[3:5]
        finally:
            await one.aclose()

    asyncio.run(check())


@pytest.mark.parametrize("solver", ["search_solver_offline", "search_solver_short"])
def test_an_example_is_asked_as_its_role_is(solver: str) -> None:
    async def check() -> None:
        one: SearchGame = game(tools=False)
        try:
            await one.seeds()
            for mine, other in (("chat", "plain"), ("plain", "chat")):
                one.solver = replace(role(solver), template=mine)
                one.proposer = replace(one.proposer, template=other)
                made = one.examples(seed=0, first=0, count=6)
                assert {(example.role, example.template) for example in made} == {
                    (solver, mine),
                    (one.proposer.name, other),
                }
        finally:
            await one.aclose()

    asyncio.run(check())


def test_all_that_it_writes_is_learnt_from() -> None:
    async def check() -> None:
        one: SearchGame = game(tools=False)
        try:
            one.solver = role("search_solver_offline")
            (task,) = [task for task in [await one.given(await seed_of(one, "Gustave Eiffel"))] if task is not None]
            attempt = await played(one, task, [FOUND.format("Gustave Eiffel") + "<answer>Gustave Eiffel</answer>"])
            sample = sample_of(attempt, advantage=1.0, group_id="g")
            assert sum(sample.trained) == attempt.num_sampled
            assert "<information>" in attempt.reply
        finally:
            await one.aclose()

    asyncio.run(check())
