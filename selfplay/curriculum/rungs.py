"""A ladder of strategies: the next one is unlocked by success on the last, and episodes may grow longer.

A rung is the name of a strategy that the game knows: ways to plant a bug, files to change, hops, masked spans. How high
the ladder has been climbed is read off the tasks in the window, so nothing is kept: the highest rung with a known task
counts as reached. The horizon grows in stages as in ScalingInter-RL (AgentGym-RL); its turns are ours.

Not here: what a strategy is (the game), replay.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from selfplay.curriculum import pool
from selfplay.curriculum.history import History, Seen, look
from selfplay.curriculum.needs import Needs
from selfplay.curriculum.options import listed, within
from selfplay.curriculum.presets import uniform
from selfplay.types import Choice, Seed, record


@record
class Ladder:
    """Options of `ladder`."""

    strategies: str = "direct"
    """The rungs, lowest first, by comma."""
    unlock: float = 0.6
    """Solve rate on a rung, at first attempts, that unlocks the next."""
    enough: int = 32
    """Decided first attempts on a rung before that counts."""
    review: float = 0.2
    """Share of the choices for lower rungs."""
    turns: int = 0
    """Turns an attempt has at first; 0: the role's own limit."""
    longer: int = 0
    """Turns that are added at a stage."""
    every: int = 50
    """Steps a stage."""
    most: int = 0
    """Most turns; 0: no bound."""
    window: int = 64
    """Closed steps that are looked at."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        if not self.asks:
            raise ValueError("option `strategies` names no rung")
        within(self, unlock=(0.0, 1.0), review=(0.0, 1.0), enough=(1, inf), every=(1, inf))
        within(self, turns=(0, inf), longer=(0, inf), most=(0, inf), window=(1, inf), patience=(1, inf))

    @property
    def asks(self) -> tuple[str, ...]:
        """Strategies that the game must have."""
        return listed(self.strategies)

    @property
    def needs(self) -> Needs:
        """All that the game must have."""
        return Needs(strategies=self.asks, terms=("turns",) if self.turns else ())


LADDER = Ladder()


def ladder(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Ladder = LADDER,
) -> tuple[Choice, ...]:
    """New tasks on the highest unlocked rung, and some on lower ones.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    seen = look(history, seeds, step=step, staleness=staleness, window=options.window, patience=options.patience)
    rung, said = climbed(seen, options)
    turns = horizon(step, options)
    fresh = uniform(history, seeds, n=n, step=step, seed=seed, first=first, taken=taken, staleness=staleness)
    choices = []
    for choice in fresh:
        key = (seed, step, "choose", choice.subject_id, "rung")
        lower = rung > 0 and pool.fraction(*key) < options.review
        at = int(pool.fraction(*key, "lower") * rung) if lower else rung
        terms = {"strategy": options.asks[at], **({"turns": turns} if turns else {})}
        why = f"{'review of ' if lower else ''}rung {at + 1} of {len(options.asks)}, `{options.asks[at]}`: {said}; "
        choices.append(replace(choice, terms=terms, why=why + choice.why))
    return tuple(choices)


def climbed(seen: Seen, options: Ladder) -> tuple[int, str]:
    """The highest unlocked rung, and why, in words."""
    names = options.asks
    known = [one.task.strategy for one in seen.candidates]
    reached = max((i for i, name in enumerate(names) if name in known), default=0)
    firsts = [one.plain[0] for one in seen.candidates if one.plain and one.task.strategy == names[reached]]
    decided, solved = sum(play.decided for play in firsts), sum(play.solved for play in firsts)
    said = f"{solved} of {decided} first attempts solved on `{names[reached]}`"
    if reached + 1 < len(names) and decided >= options.enough and solved >= options.unlock * decided:
        return reached + 1, f"{said}, at least {options.unlock:g} unlock the next"
    return reached, f"{said}, {options.unlock:g} of at least {options.enough} unlock the next"


def horizon(step: int, options: Ladder) -> int:
    """Turns that an attempt has in `step`; 0 leaves it to the role."""
    if not options.turns:
        return 0
    turns = options.turns + options.longer * (step // options.every)
    return min(turns, options.most) if options.most else turns
