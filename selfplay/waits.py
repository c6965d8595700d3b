"""Every wait of a run has a name and a deadline: a stage that stalls ends the run, which says what it waited for.

A wait is over its deadline once nothing of its name has ended for so long: whatever ends shows that the stage is alive,
however much is queued behind it. The event loop is waited for as well, so that a call that holds it up (a disk that
does not answer the ledger's writer) is noticed and named by its place in the code. Deadlines are generous; they are
there for what would never end.

A thread that watches the waits ends the run as any failure does. What hangs may keep even that from happening: then the
thread says so and ends the process, `GRACE_SECONDS` later. The ledger holds all that ended before.

Not here: limits of plays and tests, which are outcomes (`types.Limits`, `sandbox`); engines of their own, which are
started again (`policy.vllm`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfplay.errors import RunFailed

POLL_SECONDS = 1.0
GRACE_SECONDS = 60.0
LOOP_SECONDS = 900.0
"""Longest that one call may hold up the event loop."""
TORCH_SECONDS = 4 * 3600.0
"""Longest job of the torch thread, and what is queued before it; an update has more for each of its tokens."""
LEARNING_SECONDS = 0.5
"""Of an update, a token."""
REPLY_SECONDS = 900.0
"""Longest time in which no reply ends, and more for each token that one may have."""
TOKEN_SECONDS = 2.0
DECISION_SECONDS = 900.0
"""Longest time in which no decision ends, and more by the longest test run."""
TEST_RUNS = 60
"""Test runs that one decision may take, their repetitions included."""

HINT = "what is recorded is kept: look at the machine (selfplay doctor), then type the same run command again"


def end_process(message: str) -> None:
    """Say `message` and end, whatever hangs."""
    print(f"error: {message}\nhint: {HINT}", file=sys.stderr, flush=True)
    os._exit(RunFailed.exit_code)


@dataclass(slots=True)
class _Wait:
    """All waits of one name."""

    num: int = 0
    since: float = 0.0
    """When one of them ended last, or the first of them began."""
    seconds: float = 0.0


class Waits:
    """What is waited for now; any thread may ask."""

    def __init__(
        self,
        *,
        end: Callable[[str], None] = end_process,
        poll: float = POLL_SECONDS,
        grace: float = GRACE_SECONDS,
        loop_seconds: float = LOOP_SECONDS,
    ) -> None:
        """`end` is called where the run does not end by itself, `grace` seconds after it was told to."""
        self._end, self._poll, self._grace, self._loop_seconds = end, poll, grace, loop_seconds
        self._waits: dict[str, _Wait] = {}
        self._beat = 0.0
        self._over = threading.Event()
        self._stalled: str | None = None

    @contextmanager
    def on(self, what: str, *, seconds: float) -> Iterator[None]:
        """What is inside is waited for: `seconds` after the last of that name ended, or began where none has."""
        wait = self._waits.setdefault(what, _Wait())
        if wait.num:
            wait.seconds = max(wait.seconds, seconds)
        else:
            wait.since, wait.seconds = time.monotonic(), seconds
        # note: counted last, since the thread that watches may look at any moment.
        wait.num += 1
        try:
            yield
        finally:
            wait.num -= 1
            wait.since = time.monotonic()

    @asynccontextmanager
    async def guarding(self) -> AsyncIterator[None]:
        """Watch while inside.

        Raises:
            RunFailed: a wait was over its deadline.
        """
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None, "coroutines run in tasks"
        self._beat = time.monotonic()
        self._over.clear()
        name = "selfplay-waits"
        threading.Thread(target=self._watch, args=(loop, main, threading.get_ident()), name=name, daemon=True).start()
        try:
            yield
        except asyncio.CancelledError:
            if self._stalled is None:
                raise
            main.uncancel()
            raise RunFailed(self._stalled, hint=HINT) from None
        finally:
            self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any], thread: int) -> None:
        last = time.monotonic()
        while not self._over.wait(self._poll):
            now = time.monotonic()
            # note: a process that was stopped for a while has waited for nothing meanwhile.
            self._forgive(max(0.0, now - last - 10.0 * self._poll))
            last = now
            self._stalled = self._late(now, thread)
            if self._stalled is not None:
                break
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._alive)
        if self._stalled is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(main.cancel)
        # note: not ended by leaving `guarding`: closing the parts may hang on what hung.
        time.sleep(self._grace)
        self._end(self._stalled)

    def _alive(self) -> None:
        self._beat = time.monotonic()

    def _forgive(self, seconds: float) -> None:
        self._beat += seconds
        for wait in list(self._waits.values()):
            wait.since += seconds

    def _late(self, now: float, thread: int) -> str | None:
        """What is over its deadline, in one sentence; None where nothing is."""
        for what, wait in list(self._waits.items()):
            if wait.num and now - wait.since > wait.seconds:
                return f"the run waited {now - wait.since:.0f} s for {what}, and nothing came ({wait.num} under way)"
        if now - self._beat > self._loop_seconds:
            return f"one call held up the run for {now - self._beat:.0f} s: {_where(thread)}"
        return None


def _where(thread: int) -> str:
    """The innermost of our own lines that the thread is at."""
    frame = sys._current_frames().get(thread)
    lines = traceback.extract_stack(frame) if frame is not None else []
    ours = [line for line in lines if f"{os.sep}selfplay{os.sep}" in line.filename] or lines
    return f"{Path(ours[-1].filename).name}, `{ours[-1].name}`" if ours else "nobody knows where"
