"""Which of several engines answers a play: the one that answered it before, which still has its keys and values.

Not here: the engines (`vllm`, `cluster.policies`), when one of them is able.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

E = TypeVar("E")

MOST = 65_536
"""Plays of which it is remembered which engine answers them."""


class Homes(Generic[E]):
    """Of the plays that were asked for last."""

    def __init__(self, owes: Callable[[E], int]) -> None:
        """`owes` says how many replies are awaited of an engine."""
        self._owes = owes
        self._known: OrderedDict[str, E] = OrderedDict()

    def of(self, episode: str, able: Sequence[E]) -> E:
        """One of the engines in `able`: that of this play before, where it is among them; else the one that owes least.

        An `episode` without a name belongs to no play.
        """
        home = self._known.get(episode)
        if home is None or home not in able:
            home = min(able, key=self._owes)
        if episode:
            self._known[episode] = home
            self._known.move_to_end(episode)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return home

    def __getitem__(self, episode: str) -> E:
        """The engine of a play that is known."""
        return self._known[episode]
