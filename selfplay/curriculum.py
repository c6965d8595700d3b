"""What is played next, chosen from the ledger.

A curriculum is a pure function of the ledger's closed steps: it keeps nothing, so resume needs no
state of its own. The loop commits its choices before they are played, and a recorded choice wins.

Here: `uniform`, which spreads proposals evenly over the train seeds. Replay and mutation are modes
of the same record. Any dotted path to a callable of the same shape can stand in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from selfplay.errors import UserError
from selfplay.types import Choice, Seed, draw


class History(Protocol):
    """What a curriculum may ask of the ledger; closed steps only."""

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        """How often each seed was chosen in closed steps below `before`."""
        ...


class Curriculum(Protocol):
    """Chooses `n` subjects for `step`; `first` is the index of the first choice of a refill round."""

    def __call__(
        self,
        history: History,
        seeds: Sequence[Seed],
        *,
        n: int,
        step: int,
        seed: int,
        first: int,
        taken: Collection[str],
    ) -> tuple[Choice, ...]: ...


def uniform(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
) -> tuple[Choice, ...]:
    """The `n` train seeds that were proposed from least often; ties by a draw keyed by (seed, step, subject).

    `taken` are subjects already chosen in this step; they come last. Fewer seeds than `n` gives fewer choices.

    Raises:
        UserError: there is no train seed.
    """
    train = [s for s in seeds if s.split == "train"]
    if not train:
        raise UserError("no seed is left to train on: every one is held out", hint="lower game.held_out")
    counts = history.played_seeds(before=step)
    ranked = sorted(train, key=lambda s: (s.id in taken, counts.get(s.id, 0), draw(seed, step, "choose", s.id)))
    return tuple(
        Choice(
            step=step,
            index=first + i,
            mode="propose",
            subject_id=s.id,
            score=1.0 / (1 + counts.get(s.id, 0)),
            why=f"proposed from {counts.get(s.id, 0)} times so far, the least of {len(train)} train seeds",
        )
        for i, s in enumerate(ranked[:n])
    )
