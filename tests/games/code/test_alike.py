"""Near-duplicates: by what a function does to its variables, whatever they are called."""

from __future__ import annotations

import pytest

from selfplay.games.code.alike import key

PLAIN = "def first(xs, default=None):\n    for x in xs:\n        return x\n    return default\n"


@pytest.mark.parametrize(
    "other",
    [
        "def head(items, fallback=None):\n    for item in items:\n        return item\n    return fallback\n",
        PLAIN.replace("):\n", '):\n    """The first."""  # one\n', 1),
        "@cached\n" + PLAIN.replace("xs, default=None):", "xs: list, default: int = None) -> int:"),
        "    def first(xs, default=None):\n        for x in xs:\n            return x\n        return default\n",
    ],
)
def test_the_same_program(other: str) -> None:
    assert key(other) == key(PLAIN)


@pytest.mark.parametrize(
    "other",
    [
        PLAIN.replace("return x\n", "return default\n"),
        PLAIN.replace("default=None", "default=0"),
        PLAIN.replace("in xs", "in sorted(xs)"),
        PLAIN.replace("in xs", "in xs.items"),
        "async " + PLAIN,
        "x = 1\n",
    ],
)
def test_other_programs(other: str) -> None:
    assert key(other) != key(PLAIN)
