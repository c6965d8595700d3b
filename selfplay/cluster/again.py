"""A launch that begins anew where the learner is lost: the last save, the recorded updates, then what is owed.

What was sampled or decided and not recorded is sampled or decided again, as after a kill. Where the cluster itself is
lost, nothing is begun anew: the launch ends, whatever it does at that moment, sooner than Ray would end the process.

Not here: how a run comes back (`resume`), who notices (`learner.ranks`, `silence`, `head`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from selfplay.cluster import Wanted, joining
from selfplay.errors import NotReady

LEAVING_SECONDS = 20.0
"""Longest that a launch may take to end once the head is known to be lost, which Ray bears for a minute in all."""

T = TypeVar("T")


def launched(play: Callable[[], Coroutine[Any, Any, T]], wanted: Wanted | None, *, tell: Callable[[str], None]) -> T:
    """`play()`, begun anew after each loss of the learner, at most `restarts` times; None: never.

    Raises:
        LearnerLost: it was lost once more.
        NotReady: the cluster was lost.
    """
    if wanted is None:
        return asyncio.run(play())
    from selfplay.learner.ranks import LearnerLost

    for left in range(wanted.nodes.restarts, -1, -1):
        try:
            return until_lost(play)
        except LearnerLost as error:
            if (gone := joining.lost()) is not None:
                raise gone from None
            if not left:
                raise
            tell(f"{error.message}; begun anew from the last save and the ledger, at most {left} more times")
    raise AssertionError("the last time returns or raises")


def end_process(error: NotReady) -> None:
    """Say `error` and end, whatever hangs."""
    print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


def until_lost(play: Callable[[], Coroutine[Any, Any, T]], *, end: Callable[[NotReady], None] = end_process) -> T:
    """`asyncio.run(play())`, cancelled once the head of a cluster that it joins is lost, also while it asks nobody.

    `end` is called where it has not ended `LEAVING_SECONDS` later.

    Raises:
        NotReady: the head was lost.
    """
    found: list[NotReady] = []
    ended = threading.Event()

    async def watched() -> T:
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None, "coroutines run in tasks"

        def told(error: NotReady) -> None:
            if not found:
                found.append(error)
                threading.Thread(target=insist, name="cluster-lost", daemon=True).start()
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(main.cancel)

        with joining.telling(told):
            try:
                return await play()
            except asyncio.CancelledError:
                if not found:
                    raise
                main.uncancel()
                raise found[0] from None

    def insist() -> None:
        if not ended.wait(LEAVING_SECONDS):
            end(found[0])

    try:
        return asyncio.run(watched())
    finally:
        ended.set()
