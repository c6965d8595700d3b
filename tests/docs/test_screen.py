"""The picture of README's screen: drawn from a real run, and nothing in it is fetched or run by who looks at it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.docs.screen import drawn

PICTURE = Path(__file__).parents[2] / "docs" / "screen.svg"
NAMESPACE = "http://www.w3.org/2000/svg"


def harmless(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{{{NAMESPACE}}}svg"
    assert set(re.findall(r"https?://[^\"'\s)]+", svg)) <= {NAMESPACE, "https://www.textualize.io"}
    assert "<script" not in svg
    assert "@font-face" not in svg


def test_it_is_drawn_from_a_run(tmp_path: Path, play: Callable[..., Any]) -> None:
    folder = tmp_path / "runs" / "toy"
    play(folder, steps=2)
    svg = drawn(folder)
    harmless(svg)
    assert "selfplay&#160;watch&#160;toy" in svg or "selfplay watch toy" in svg
    assert "echo_proposer" in svg
    assert drawn(folder) == svg


def test_the_picture_that_is_shown() -> None:
    harmless(PICTURE.read_text(encoding="utf-8"))
