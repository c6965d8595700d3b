"""Somebody who knows nothing but the name: every command that is typed was printed by the one before it.

Not here: what each page says (`tests/views`), a browser that opens the report (`tests/report_browser`).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]

STEPS = "3"
"""Of the demo, which takes a minute otherwise."""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one; runs go where they would go, whatever lies above it."""
    monkeypatch.delenv("SELFPLAY_PROJECT", raising=False)
    monkeypatch.setenv("SELFPLAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    monkeypatch.setenv("SELFPLAY_RUN_STEPS", STEPS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(text: str) -> Iterator[list[str]]:
    """The commands in `text`: each begins a line or stands behind a word or two, and two spaces or a dot end it."""
    for row in text.splitlines():
        for part in re.split(r" {2,}| · ", row):
            if part.startswith(("selfplay ", "python -m ")):
                yield shlex.split(part)


@pytest.fixture
def follow(spawned: Callable[..., Typed]) -> Callable[..., Any]:
    """`follow(text, "inspect")`: type the first printed command of that name; all that it prints."""

    def go(text: str, name: str, number: int = 3) -> str:
        found = [words for words in printed(text) if words[0] == "selfplay" and words[1] == name]
        assert found, f"no `selfplay {name}` in:\n{text}"
        assert all(len(words) <= number for words in found[:1])
        code, out, err = spawned(*found[0][1:])
        assert code == 0, err
        return out + err

    return go


def test_a_demo_a_trajectory_and_an_open_report(
    nowhere: Path, spawned: Callable[..., Typed], follow: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "".join(spawned()[1:])
    assert list(nowhere.iterdir()) == []
    demo = follow(first, "demo")
    assert f"demo: {STEPS} of {STEPS} steps, done" in demo
    listing = follow(demo, "inspect")
    play = follow(listing, "inspect", number=4)
    assert "solved in" in play
    assert "chosen" in follow(play, "why", number=4)
    told = follow(demo, "report")
    (opening,) = [words for words in printed(told) if words[0] == "python"]
    opened = nowhere / "opened"
    browser = nowhere / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shlex.quote(str(opened))}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    subprocess.run([sys.executable, *opening[1:]], check=True, capture_output=True)
    address = opened.read_text().strip()
    assert Path(address.removeprefix("file://")).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_every_command_that_a_demo_leads_to_can_be_typed(
    nowhere: Path, spawned: Callable[..., Typed], follow: Callable[..., Any]
) -> None:
    """Breadth first, two commands deep, but for those that play or wait."""
    told = follow("".join(spawned()[1:]), "demo")
    waiting, done = [(words, 0) for words in printed(told)], set()
    while waiting:
        words, depth = waiting.pop(0)
        if tuple(words) in done or words[0] != "selfplay" or words[1] in ("run", "demo") or words[-1].isupper():
            continue
        done.add(tuple(words))
        code, out, err = spawned(*words[1:])
        assert code == 0, (words, err)
        waiting += [(found, depth + 1) for found in printed(out + err) if depth < 2]
    assert {words[1] for words in done} >= {"status", "inspect", "report", "why"}
