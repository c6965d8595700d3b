"""What a run's curriculum believes about its tasks, read with the run's own options: for `frontier` and `why`.

A belief is the curriculum's own (`curriculum.history.look`), over the closed steps that it looks at. Where a preset
believes nothing (`uniform`), or is somebody's own function, the window and the half-life are those of `frontier`.

Not here: the formulas (`curriculum.posterior`), drawing (`views.frontier`, `views.why`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from selfplay import curriculum
from selfplay.curriculum.history import KnownTask, Proposed, Seen, look
from selfplay.curriculum.options import defaults_of, filled
from selfplay.curriculum.posterior import best_rate
from selfplay.curriculum.presets import FRONTIER, Uniform
from selfplay.errors import UserError
from selfplay.games.rewards import proposer_reward
from selfplay.ledger import Reader
from selfplay.types import Seed, record


@record
class Lens:
    """How a run looks at its past."""

    name: str
    """What `curriculum.choose` names."""
    options: Any
    """The record of its options; None for a function that is not of this package."""
    window: int
    """Closed steps that are looked at."""
    half_life: float
    """Movement of the policy, in updates, after which an attempt counts half; infinite: never."""
    reach: int
    """Steps of which the movement is known."""
    target: float | None
    """The solve rate that the curriculum looks for; None where it looks for none."""
    reward: str
    """What `rewards.proposer` names."""
    paid: float | None
    """The solve rate at which that reward pays most; None where it does not follow from the solve rate alone."""
    attempts: int


@record
class _Past:
    """A ledger whose movement goes back no further than the curriculum reads it, and that never stops the run."""

    reader: Reader
    reach: int

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        # note: only a choice needs it, and it counts over the whole run.
        return {}

    def known_tasks(self, *, since: int, before: int) -> Sequence[KnownTask]:
        return self.reader.known_tasks(since=since, before=before)

    def proposals(self, *, since: int, before: int) -> Mapping[str, Proposed]:
        return {}

    def movement(self, *, since: int, before: int) -> Mapping[int, float]:
        return self.reader.movement(since=max(since, before - self.reach), before=before)

    def failed_attempts(self, task_id: str, *, before: int) -> Sequence[str]:
        return self.reader.failed_attempts(task_id, before=before)


def lens_of(config: Mapping[str, Any]) -> Lens:
    """The lens of a run with this configuration, as its ledger holds it."""
    name = str(config.get("curriculum.choose", "uniform"))
    function = getattr(curriculum, name, None)
    default = defaults_of(function) if inspect.isfunction(function) else None
    given = config.get("curriculum.options") or {}
    options = filled(default, given, name=name, key="curriculum.options") if default is not None else None
    window = getattr(options, "window", FRONTIER.window)
    unsure = FRONTIER.half_life if options is None or isinstance(options, Uniform) else inf
    return Lens(
        name=name,
        options=options,
        window=window,
        half_life=getattr(options, "half_life", unsure),
        reach=max(window, getattr(options, "patience", FRONTIER.patience)),
        target=getattr(options, "target", None),
        reward=str(config.get("rewards.proposer", "ssr")),
        paid=_paid(config),
        attempts=int(config.get("play.attempts", 0)),
    )


def believed(reader: Reader, seeds: Sequence[Seed], lens: Lens, *, after: int) -> Seen:
    """What is believed once step `after` is closed."""
    return look(
        _Past(reader=reader, reach=lens.reach),
        seeds,
        step=after + 1,
        staleness=0,
        window=lens.window,
        half_life=lens.half_life,
        patience=lens.reach + 1,
    )


def _paid(config: Mapping[str, Any]) -> float | None:
    name, attempts = str(config.get("rewards.proposer", "ssr")), int(config.get("play.attempts", 0))
    if ":" in name or attempts < 1:
        # note: somebody's own function is not imported to look at a run.
        return None
    try:
        reward = proposer_reward(
            name,
            alpha=float(config.get("rewards.alpha", 0.8)),
            min_viable=min(int(config.get("play.min_viable", 6)), attempts),
            options=config.get("rewards.options") or {},
        )
    except UserError:
        return None
    if any(reward(True, passed, attempts) is None for passed in range(attempts + 1)):
        return None
    return best_rate(lambda k, n: reward(True, k, n) or 0.0, attempts)
