from __future__ import annotations

import pytest

from selfplay.views.words import UNKNOWN, clean, duration, number, plural, share, shorten, size


@pytest.mark.parametrize(
    ("top", "bottom", "text"), [(5, 8, "62 %"), (0, 8, "0 %"), (None, 8, UNKNOWN), (0, 0, UNKNOWN)]
)
def test_share(top: float | None, bottom: float | None, text: str) -> None:
    assert share(top, bottom) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, UNKNOWN),
        (0.04, "0.0 s"),
        (40, "40 s"),
        (89.9, "90 s"),
        (120, "2 min"),
        (7860, "2 h 11 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert (number(None), number(0.123), number(0.5, signed=True)) == (UNKNOWN, "0.12", "+0.50")
    assert (size(512), size(3_400_000), size(2e12)) == ("512 B", "3.4 MB", "2.0 TB")
    assert (plural(1, "step"), plural(0, "step")) == ("1 step", "0 steps")


def test_text_of_a_model_cannot_touch_the_terminal() -> None:
    assert clean("a\x1b[31m\x07\tb\nc\x9b") == "a\\x1b[31m\\x07    b\nc\\x9b"
    assert clean("\u202eabc") == "\\u202eabc"
    assert shorten("one two\nthree", 20) == "one two"
    assert shorten("abcdef", 4) == "abc…"
