"""Counts by stage and role, from the rows of a step; sums of them are kept with every closed step.

So the cost of `status` does not grow with the run: one row for all that is closed, and the rows of
what is open. Rewards are summed exactly, so that the order of the rows does not show.

Not here: stage `evaluate` and children of attempts, whose rows may come after their step closed.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from typing import Any

from selfplay.ledger.records import Tallies, Tally
from selfplay.types import Stop

_TRUNCATED = ", ".join(f"'{stop}'" for stop in Stop if stop.truncated)

_PLAYED = """
SELECT stage || '/' || role AS place,
    count(*) AS trajectories,
    sum(fault IS NOT NULL) AS faults,
    sum(stop IN ({truncated})) AS truncated,
    sum(num_sampled) AS tokens
FROM trajectories WHERE step {which} ? AND stage <> 'evaluate' GROUP BY stage, role
"""

# note: CROSS JOIN keeps SQLite from starting at verdicts, which it does without statistics.
_DECIDED = """
SELECT t.stage || '/' || t.role AS place, v.stage AS stage, v.valid AS valid, v.passed AS passed, v.reason AS reason,
    v.fault IS NOT NULL AS broken, count(*) AS num
FROM trajectories t CROSS JOIN verdicts v ON v.trajectory_id = t.id
WHERE t.step {which} ? AND t.stage <> 'evaluate' AND (v.stage <> 'mint' OR t.stage = 'propose')
GROUP BY 1, 2, 3, 4, 5, 6
"""

_REWARDS = """
SELECT t.stage || '/' || t.role AS place, v.reward AS reward
FROM trajectories t CROSS JOIN verdicts v ON v.trajectory_id = t.id
WHERE t.step {which} ? AND t.stage <> 'evaluate' AND v.stage IN ('grade', 'judge') AND v.reward IS NOT NULL
"""

_PLAIN = ("played", "faults", "decided", "left_out", "valid", "passed", "truncated", "tokens", "rewarded", "reward_sum")


def of_step(connection: sqlite3.Connection, step: int) -> dict[str, Tally]:
    """Counts of one step."""
    return _count(connection, "=", step)


def after_step(connection: sqlite3.Connection, step: int) -> dict[str, Tally]:
    """Counts of all later steps together."""
    return _count(connection, ">", step)


def add(totals: Tallies, step: Tallies) -> dict[str, Tally]:
    """The sum, place by place."""
    return {place: _sum(totals.get(place, Tally()), step.get(place, Tally())) for place in sorted({*totals, *step})}


def dump(tallies: Tallies) -> dict[str, Any]:
    """As JSON."""
    return {
        place: {**{name: getattr(tally, name) for name in _PLAIN}, "reasons": dict(tally.reasons)}
        for place, tally in tallies.items()
    }


def load(text: str) -> dict[str, Tally]:
    """The inverse of `dump`, from its text."""
    return {place: Tally(**tally) for place, tally in json.loads(text).items()}


def _count(connection: sqlite3.Connection, which: str, step: int) -> dict[str, Tally]:
    counts: dict[str, dict[str, Any]] = {}
    rewards: dict[str, list[float]] = {}
    for place, trajectories, faults, truncated, tokens in connection.execute(
        _PLAYED.format(which=which, truncated=_TRUNCATED), (step,)
    ):
        played = {"played": trajectories - faults, "faults": faults, "truncated": truncated, "tokens": tokens}
        counts[place] = {**played, "decided": 0, "left_out": 0, "valid": 0, "passed": 0, "reasons": {}}
    for place, stage, valid, passed, reason, broken, num in connection.execute(_DECIDED.format(which=which), (step,)):
        here = counts[place]
        if broken:
            here["faults"] += num
        elif stage == "judge" and passed is None:
            here["left_out"] += num
            here["reasons"][reason] = here["reasons"].get(reason, 0) + num
        elif stage != "grade":
            here["decided"] += num
            here["valid"] += num * valid
            here["passed"] += num * (passed or 0)
            here["reasons"][reason] = here["reasons"].get(reason, 0) + num
    for place, reward in connection.execute(_REWARDS.format(which=which), (step,)):
        rewards.setdefault(place, []).append(reward)
    return {
        place: Tally(**here, rewarded=len(rewards.get(place, ())), reward_sum=math.fsum(rewards.get(place, ())))
        for place, here in sorted(counts.items())
    }


def _sum(a: Tally, b: Tally) -> Tally:
    return Tally(**{name: getattr(a, name) + getattr(b, name) for name in _PLAIN}, reasons=_merge(a.reasons, b.reasons))


def _merge(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {reason: a.get(reason, 0) + b.get(reason, 0) for reason in sorted({*a, *b})}
