"""What is asked for twice is made once, unless it was raised or is too long ago."""

from __future__ import annotations

import asyncio

import pytest

from selfplay.games.code.once import Once


class Maker:
    """Counts what it makes."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.fails = 0

    async def make(self, key: str) -> str:
        """`key`, in capitals."""
        self.made.append(key)
        await asyncio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise OSError(key)
        return key.upper()


def test_those_who_ask_meanwhile_wait() -> None:
    maker, once = Maker(), Once[str](most=4)

    async def main() -> list[str]:
        return await asyncio.gather(*(once.get(key, lambda key=key: maker.make(key)) for key in "aabab"))

    assert asyncio.run(main()) == ["A", "A", "B", "A", "B"]
    assert sorted(maker.made) == ["a", "b"]


def test_what_is_raised_is_not_kept() -> None:
    maker, once = Maker(), Once[str](most=4)
    maker.fails = 1

    async def main() -> str:
        with pytest.raises(OSError, match="a"):
            await once.get("a", lambda: maker.make("a"))
        return await once.get("a", lambda: maker.make("a"))

    assert asyncio.run(main()) == "A"
    assert maker.made == ["a", "a"]


def test_the_longest_unasked_is_forgotten() -> None:
    maker, once = Maker(), Once[str](most=2)

    async def main() -> None:
        for key in "abacaba":
            await once.get(key, lambda key=key: maker.make(key))

    asyncio.run(main())
    assert maker.made == ["a", "b", "c", "b"]
