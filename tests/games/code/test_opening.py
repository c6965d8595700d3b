"""A repository is surveyed once, by whoever asks first, and closed with everything that was made for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from selfplay.errors import NotFound
from selfplay.games.code import Settings
from selfplay.games.code.opening import Opening
from selfplay.games.code.survey import Rules
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from tests.experts.stage import left_by_us

pytestmark = pytest.mark.bubblewrap


def opening(source: str, cache: Path) -> Opening:
    settings = Settings(rules=Rules(max_failing=0.3), stdlib=5)
    return Opening(source, cache=cache, provider=BubblewrapProvider(), settings=settings)


def test_all_who_ask_get_the_one_survey(bubblewrap: None, package: Path, tmp_path: Path) -> None:
    async def ask() -> None:
        made = opening(str(package), tmp_path)
        try:
            with pytest.raises(AssertionError, match=r"seeds\(\) comes first"):
                _ = made.surveyed
            first, second = await asyncio.gather(made.opened(), made.opened())
            assert first is second is made.surveyed
            assert {seed.payload["qualname"] for seed in first.seeds} >= {"add", "count", "Stack.push"}
        finally:
            await made.aclose()

    before = left_by_us("bubblewrap")
    asyncio.run(ask())
    assert left_by_us("bubblewrap") <= before


def test_another_opening_reads_the_survey_that_was_kept(bubblewrap: None, package: Path, tmp_path: Path) -> None:
    async def ask(made: Opening) -> tuple[str, ...]:
        try:
            return tuple(seed.id for seed in (await made.opened()).seeds)
        finally:
            await made.aclose()

    first = asyncio.run(ask(opening(str(package), tmp_path)))
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert asyncio.run(ask(opening(str(package), tmp_path))) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == kept


def test_what_cannot_be_opened_is_asked_for_again(bubblewrap: None, tmp_path: Path) -> None:
    async def ask() -> None:
        made = opening(str(tmp_path / "missing"), tmp_path / "cache")
        try:
            for _ in range(2):
                with pytest.raises(NotFound, match="does not exist"):
                    await made.opened()
        finally:
            await made.aclose()

    asyncio.run(ask())
