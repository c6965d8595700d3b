"""A run's metrics as points: one number of one closed step at one time. What trackers are filled with.

Names are `PROPOSER OR SOLVER STAGE/ROLE/WHAT`: `propose/injector/valid`, `attempt/repairer/reward`, `update/loss`,
`update/metrics/...`, `seconds/...`, `counts/...`, `held_out/...`. Shares are of what was decided.

Not here: the warm-up's updates (they have steps of their own), writing (`trackers`, `tables`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from selfplay.exports.seam import Asked
from selfplay.ledger import StepRow
from selfplay.ledger.records import Tally
from selfplay.types import Update, record
from selfplay.views.evaluation import recorded, summary


@record
class Moment:
    """One closed step."""

    step: int
    at: float
    """Unix seconds at which it was closed."""
    values: Mapping[str, float]
    """Name -> number; finite."""


def moments(asked: Asked) -> Iterator[Moment]:
    """The closed steps, in order."""
    for row in asked.reader.step_rows():
        values = {**_played(row), **_learnt(asked.reader.update(row.step)), **_held_out(asked, row.step + 1)}
        kept = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        yield Moment(step=row.step, at=row.closed_at, values=kept)


def _played(row: StepRow) -> dict[str, float]:
    values: dict[str, float] = {}
    for place, tally in row.tallies.items():
        values |= {f"{place}/{name}": value for name, value in _shares(place, tally).items()}
    values |= {f"seconds/{name}": value for name, value in row.stage_seconds.items()}
    if row.opened_at is not None:
        values["seconds/step"] = row.closed_at - row.opened_at
    return values | {f"counts/{name}": value for name, value in row.counts.items()}


def _shares(place: str, tally: Tally) -> dict[str, float]:
    values: dict[str, float] = {"played": tally.played, "faults": tally.faults, "tokens": tally.tokens}
    if tally.played:
        values["truncated"] = tally.truncated / tally.played
        values["tokens_each"] = tally.tokens / tally.played
    if tally.decided:
        proposed = place.startswith("propose/")
        values["valid" if proposed else "solved"] = (tally.valid if proposed else tally.passed) / tally.decided
    if tally.rewarded:
        values["reward"] = tally.reward_sum / tally.rewarded
    return values


def _learnt(update: Update | None) -> dict[str, float]:
    if update is None:
        return {}
    values: dict[str, float] = {"update/policy_version": update.policy_version, "update/seconds": update.seconds}
    if update.skipped is None:
        values |= {
            "update/loss": update.loss,
            "update/grad_norm": update.grad_norm,
            "update/lr": update.lr,
            "update/tokens": update.tokens,
        }
    return values | {f"update/metrics/{name}": value for name, value in update.metrics.items()}


def _held_out(asked: Asked, done: int) -> dict[str, float]:
    """The evaluation that was made after `done` closed steps: figures only, no task is told."""
    config = asked.reader.run_row().config
    tasks, attempts = int(config.get("eval.tasks", 0)), int(config.get("eval.attempts", 1))
    plays = recorded(asked.reader, done, tasks=tasks, attempts=attempts) if tasks else None
    if plays is None:
        return {}
    found = summary(plays, ks=(1, attempts))
    values = {f"held_out/pass@{k}": one.value for k, one in found.passes.items() if one.value is not None}
    return values | ({"held_out/valid": found.valid.value} if found.valid.value is not None else {})
