"""Who listens to a run: a live screen on a terminal, plain lines elsewhere, JSON lines for programs.

Each is a context manager and an `Observer`. Words go to stderr, JSON to stdout.

Not here: what is drawn (`progress`), the end's summary (`status`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from selfplay.events import Event
from selfplay.views.envelope import emit, envelope
from selfplay.views.progress import Progress, line, screen

Clock = Callable[[], float]

WARMUP_SECONDS = 10.0
"""Plain lines of the warm-up are at least this far apart."""


class LiveObserver:
    """Redraws one screen in place, at most four times a second."""

    def __init__(self, console: Console, *, run: str, clock: Clock = time.monotonic) -> None:
        self._progress = Progress(run=run)
        self._clock = clock
        self._live = Live(console=console, get_renderable=self._screen, refresh_per_second=4)

    def __call__(self, event: Event) -> None:
        self._progress.take(event, now=self._clock())

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def _screen(self) -> RenderableType:
        return screen(self._progress, now=self._clock())


class PlainObserver:
    """Writes a line for each event that deserves one, and flushes it; `quiet` leaves alarms only."""

    def __init__(self, to: TextIO, *, run: str, quiet: bool = False, clock: Clock = time.monotonic) -> None:
        self._to = to
        self._progress = Progress(run=run)
        self._quiet = quiet
        self._clock = clock
        self._warmup_shown: float | None = None

    def __call__(self, event: Event) -> None:
        now = self._clock()
        self._progress.take(event, now=now)
        if self._quiet and event.kind != "alarm":
            return
        if event.kind == "update" and not self._due(event, now):
            return
        text = line(event, self._progress)
        if text is not None:
            self._to.write(text + "\n")
            self._to.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._to.flush()

    def _due(self, event: Event, now: float) -> bool:
        last = event.data.get("index", 0) + 1 == event.data.get("total")
        if self._warmup_shown is not None and now - self._warmup_shown < WARMUP_SECONDS and not last:
            return False
        self._warmup_shown = now
        return True


class JsonObserver:
    """Writes one JSON line an event."""

    def __init__(self, to: TextIO, *, run: str) -> None:
        self._to = to
        self._run = run

    def __call__(self, event: Event) -> None:
        body = {"kind": event.kind, "step": event.step, "stage": event.stage, "data": dict(event.data)}
        emit(envelope("event", body, run=self._run), self._to)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._to.flush()
