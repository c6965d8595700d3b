"""An evaluation in figures: pass@k of held-out tasks and the share of valid proposals, each with its interval.

The same for a run's own evaluations, which its ledger holds, and for those of `selfplay eval`.

Not here: the estimators (`estimate`), playing (`evaluation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from selfplay.estimate import Estimate, mean, pass_rate
from selfplay.ledger import Reader, held_out
from selfplay.ledger.held_out import HeldOutPlay
from selfplay.types import record
from selfplay.views.words import UNKNOWN, plural


@record
class Summary:
    """What a set of plays on held-out subjects says about the weights."""

    passes: Mapping[int, Estimate]
    """k -> pass@k, the mean over tasks."""
    valid: Estimate
    """Share of the decided proposals that are valid, the mean over seeds."""
    tasks: int
    seeds: int
    attempts: int
    """Played, over all tasks."""
    undecided: int
    """Attempts without a decision: left out of every figure."""
    proposals: int
    proposals_undecided: int


def summary(plays: Sequence[HeldOutPlay], *, ks: Sequence[int], seed: int = 0) -> Summary:
    """The figures of `plays`; a pure function of its arguments, whatever the order of the plays."""
    attempts = [play for play in plays if play.side == "solver"]
    proposals = [play for play in plays if play.side == "proposer"]
    counts = counts_of(plays)
    valid: dict[str, list[bool]] = {}
    for play in proposals:
        if play.valid is not None:
            valid.setdefault(play.subject_id, []).append(play.valid)
    return Summary(
        passes={k: pass_rate(counts, k=k, seed=seed) for k in ks},
        valid=mean([sum(found) / len(found) for _, found in sorted(valid.items())], seed=seed),
        tasks=len(counts),
        seeds=len({play.subject_id for play in proposals}),
        attempts=len(attempts),
        undecided=sum(play.passed is None for play in attempts),
        proposals=len(proposals),
        proposals_undecided=sum(play.valid is None for play in proposals),
    )


def counts_of(plays: Sequence[HeldOutPlay]) -> dict[str, tuple[int, int]]:
    """Task id -> (decided attempts, passed ones), also of tasks without a decided one."""
    counts: dict[str, tuple[int, int]] = {}
    for play in plays:
        if play.side == "solver":
            n, c = counts.get(play.subject_id, (0, 0))
            counts[play.subject_id] = (n + (play.passed is not None), c + bool(play.passed))
    return counts


def recorded(reader: Reader, done: int, *, tasks: int, attempts: int) -> tuple[HeldOutPlay, ...] | None:
    """The run's evaluation after `done` closed steps, where every play of it is there and decided; else None.

    `tasks` and `attempts` are the run's `eval.tasks` and `eval.attempts`.
    """
    plays = reader.ask(partial(held_out.plays, step=done))
    proposals = sum(play.side == "proposer" for play in plays)
    if not plays or any(play.owed for play in plays) or proposals < min(tasks, reader.ask(held_out.num_seeds)):
        return None
    return plays if len(plays) - proposals >= attempts * len(reader.ask(held_out.tasks)) else None


def newest(reader: Reader) -> tuple[int, Summary] | None:
    """(closed steps, figures) of the run's newest whole evaluation; None where there is none."""
    config = reader.run_row().config
    every, tasks, attempts = (int(config.get(f"eval.{name}") or 0) for name in ("every", "tasks", "attempts"))
    if not every:
        return None
    last = (reader.last_closed_step() + 1) // every * every
    # note: the one that is due may be half played.
    for done in (last, last - every):
        plays = recorded(reader, done, tasks=tasks, attempts=attempts) if done >= 0 else None
        if plays:
            return done, summary(plays, ks=sorted({1, attempts}))
    return None


def line(found: Summary) -> str:
    """One line: `pass@1 12.5 % [3.1, 25.0], pass@4 ..., valid 40.0 % [...] (16 tasks x 4, 16 proposals)`."""
    parts = [f"pass@{k} {percent(estimate)}" for k, estimate in found.passes.items()]
    parts += [f"valid {percent(found.valid)}"] if found.proposals else []
    each = found.attempts // found.tasks if found.tasks else 0
    size = [f"{plural(found.tasks, 'task')} x {each}"] if found.tasks else ["no task"]
    size += [plural(found.proposals, "proposal")] if found.proposals else []
    left = found.undecided + found.proposals_undecided
    size += [f"{left} undecided, left out"] if left else []
    return f"{', '.join(parts)} ({', '.join(size)})"


def percent(estimate: Estimate, *, signed: bool = False) -> str:
    """`12.5 % [3.1, 25.0]`; a dash where there is nothing."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return UNKNOWN
    sign = "+" if signed else ""
    value, low, high = (f"{100 * part:{sign}.1f}" for part in (estimate.value, estimate.low, estimate.high))
    return f"{value} % [{low}, {high}]"


def summary_data(found: Summary) -> dict[str, Any]:
    """As JSON."""
    return {
        "pass_at": {str(k): estimate_data(estimate) for k, estimate in found.passes.items()},
        "valid": estimate_data(found.valid),
        "tasks": found.tasks,
        "seeds": found.seeds,
        "attempts": found.attempts,
        "undecided": found.undecided,
        "proposals": found.proposals,
        "proposals_undecided": found.proposals_undecided,
    }


def estimate_data(estimate: Estimate) -> dict[str, Any]:
    """As JSON."""
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "units": estimate.units,
        "left_out": estimate.left_out,
    }
