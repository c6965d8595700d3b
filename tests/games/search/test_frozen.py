"""A frozen reader behind a real socket: what it is asked, and that whatever it does wrong decides nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfplay.games.search.frozen import KEY, FrozenAsks
from selfplay.games.search.options import Options
from selfplay.games.search.records import AskFailed, Said
from selfplay.types import Verdict
from tests.games.search.ground import NO_CHECKS, corpus, game, played, seed_of
from tests.served import Served, serving

CHAT = "/v1/chat/completions"


def says(text: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"completion_tokens": 7}}


def asked(served: Served, *, seconds: float = 20.0) -> Said:
    return asyncio.run(FrozenAsks(f"org/judge@{served.url}", seconds=seconds).ask("Is it?", key="k"))


def test_it_is_asked_by_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    with serving(lambda body: (200, says("correct")), path=CHAT) as served:
        said, again = asked(served), asked(served)
    assert (said.text, said.tokens) == (again.text, again.tokens) == ("correct", 7)
    first, second = served.asked
    assert (first["model"], first["messages"]) == ("org/judge", [{"role": "user", "content": "Is it?"}])
    assert first == second, "the seed hangs on the key alone"
    assert served.keys == ["Bearer secret"] * 2


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, "down"),
        (401, "no"),
        (200, "<html>"),
        (200, []),
        (200, {"choices": []}),
        (200, says(None)),
        (200, {"choices": [{"message": {"content": "x"}}], "usage": {"completion_tokens": "many"}}),
    ],
)
def test_what_is_no_reply_is_a_fault(status: int, answer: Any) -> None:
    with serving(lambda body: (status, answer), path=CHAT) as served, pytest.raises(AskFailed, match="the reader at"):
        asked(served)


def test_a_reader_that_is_not_there_is_a_fault() -> None:
    with pytest.raises(AskFailed, match="was not reached"):
        asyncio.run(FrozenAsks("m@http://127.0.0.1:9/v1").ask("Is it?", key="k"))


@pytest.mark.parametrize("reader", ["judge", "@http://127.0.0.1/v1", "judge@ftp://127.0.0.1"])
def test_what_names_nobody_is_refused(reader: str) -> None:
    with pytest.raises(ValueError, match="is no reader"):
        Options(reader=reader)


def test_a_frozen_judge_decides_without_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    corpus(tmp_path / "texts")

    async def main(served: Served) -> list[Verdict]:
        one = game(tools=False, options=replace(NO_CHECKS, judge=True, reader=f"m@{served.url}"))
        try:
            task = await one.given(await seed_of(one, "Gustave Eiffel"))
            assert task is not None
            return [await one.judge(await played(one, task, ["the engineer Eiffel"]), task) for _ in range(3)]
        finally:
            await one.aclose()

    with serving(lambda body: (200, says("Incorrect.")), path=CHAT) as served:
        served.first += [(200, says("Correct.")), (503, "busy")]
        right, fault, wrong = asyncio.run(main(served))
    assert (right.passed, right.reward) == (True, 1.0)
    assert (fault.passed, fault.reward, fault.reason) == (None, None, "fault")
    assert (wrong.passed, wrong.reward) == (False, -1.0)
