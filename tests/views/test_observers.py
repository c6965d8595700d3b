from __future__ import annotations

import io
import json

from rich.console import Console

from selfplay.events import Event
from selfplay.views.observers import JsonObserver, LiveObserver, PlainObserver


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def warmup(index: int) -> Event:
    data = {"phase": "warmup", "index": index, "total": 100, "loss": 1.0, "version": index + 1}
    return Event(kind="update", step=index, stage="warmup", data=data)


def test_warm_up_lines_are_ten_seconds_apart_and_the_last_is_shown() -> None:
    to, clock = io.StringIO(), Time()
    with PlainObserver(to, run="r", clock=clock) as observer:
        for index in range(100):
            observer(warmup(index))
            clock.now += 1.0
    shown = [row.split()[0] for row in to.getvalue().splitlines()]
    assert shown == [f"warmup={n}/100" for n in (1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 100)]


def test_quiet_leaves_alarms() -> None:
    to = io.StringIO()
    observer = PlainObserver(to, run="r", quiet=True)
    observer(Event(kind="note", data={"text": "nothing"}))
    observer(Event(kind="step", step=0, data={}))
    observer(Event(kind="alarm", data={"level": "error", "text": "look"}))
    assert to.getvalue() == "error: look\n"


def test_one_json_line_an_event() -> None:
    to = io.StringIO()
    with JsonObserver(to, run="r") as observer:
        observer(Event(kind="step", step=3, data={"loss": float("nan"), "valid": 2}))
        observer(Event(kind="note", data={"text": "a\nb"}))
    first, second = (json.loads(row) for row in to.getvalue().splitlines())
    assert (first["schema"], first["run"]) == ("selfplay.event/1", "r")
    assert first["data"] == {"kind": "step", "step": 3, "stage": None, "data": {"loss": None, "valid": 2}}
    assert second["data"]["data"]["text"] == "a\nb"


def test_the_live_screen_ends_with_the_last_state() -> None:
    to = io.StringIO()
    console = Console(file=to, width=80, force_terminal=True, color_system=None)
    with LiveObserver(console, run="r", clock=Time()) as observer:
        observer(Event(kind="launch", data={"run": "r", "steps": 2, "done": 0}))
        observer(Event(kind="step", step=0, data={"version": 1}))
        observer(Event(kind="end", data={"stop": "interrupted", "steps": 1, "seconds": 1.0}))
    assert "1/2 steps" in to.getvalue()
    assert "interrupted" in to.getvalue()
