"""A launch that begins anew where the learner is lost: the last save, the recorded updates, then what is owed.

What was sampled or decided and not recorded is sampled or decided again, as after a kill. Where the cluster itself is
lost, nothing is begun anew.

Not here: how a run comes back (`resume`), who notices (`learner.ranks`, `silence`, `head`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from selfplay.cluster import Wanted, joining

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
            return asyncio.run(play())
        except LearnerLost as error:
            if (gone := joining.lost()) is not None:
                raise gone from None
            if not left:
                raise
            tell(f"{error.message}; begun anew from the last save and the ledger, at most {left} more times")
    raise AssertionError("the last time returns or raises")
