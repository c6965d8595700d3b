"""What the ledger itself knows beside the records of `types.py`: the run, launches, closed steps, counts.

Not here: how they are stored (`rows.py`, `schema.py`) or asked for (`queries.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Any, Literal

from selfplay.types import Fault, record

Level = Literal["note", "warning", "error"]


@record
class RunRow:
    """What a run is: fixed when it is made."""

    config_digest: str
    """Digest of every setting that affects results; guards resume."""
    config: Mapping[str, Any]
    """The resolved configuration; JSON."""
    seed: int
    """Keys every random draw."""
    game: str
    schema_version: int
    """The schema that the run was made with; `PRAGMA user_version` is the one it has now."""
    engine_version: str
    at: float
    """Unix seconds at which it was made."""


REVERIFIED = ("reverified", "not_reverified")
"""How a launch ended that judged again what was played: it plays nothing, so the run stands as it stood before."""


@record
class Launch:
    """One process that held the run."""

    id: int
    pid: int
    host: str
    engine_version: str
    started_at: float
    """Unix seconds."""
    ended_at: float | None
    """None where the process was killed, or is still at it."""
    how: str | None
    """`done`, `stopped`, `failed`, ...; None with `ended_at`."""


@record
class Tally:
    """Counts of one role in one stage."""

    played: int = 0
    """Trajectories that ended without a fault."""
    faults: int = 0
    """Trajectories and verdicts that ended in a fault: nothing was decided."""
    decided: int = 0
    """Of those played, how many have a verdict (mint or judge) without a fault, which says yes or no."""
    left_out: int = 0
    """Of those played, how many have a verdict without a fault that says neither: suspicious attempts."""
    valid: int = 0
    passed: int = 0
    truncated: int = 0
    """Ended by a limit."""
    tokens: int = 0
    """Sampled by the policy."""
    rewarded: int = 0
    """How many have a reward (of a `grade` for proposals, of a `judge` for attempts)."""
    reward_sum: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Reason code -> how many mint or judge verdicts without a fault carry it."""


Tallies = Mapping[str, Tally]
"""`STAGE/ROLE` -> counts, e.g. `propose/injector`."""


@record
class StepRow:
    """One closed step."""

    step: int
    opened_at: float | None
    """Unix seconds of its first choice; None where it had none."""
    closed_at: float
    stage_seconds: Mapping[str, float]
    """Wall-clock seconds by what the run was doing."""
    counts: Mapping[str, float]
    """The loop's own counts of the step."""
    tallies: Tallies
    """This step, counted by the ledger from its rows as it closed."""


@record
class ParentRow:
    """Where a fork comes from. The parent's records stay with the parent."""

    path: str
    """The parent's folder, relative to this run's."""
    config_digest: str
    """The parent's."""
    step: int
    """The parent's last step that the weights have seen; -1 for none."""
    policy_version: int
    weights_digest: str
    save_path: str
    """The save in the parent, as its ledger names it."""
    changed: Mapping[str, tuple[Any, Any]]
    """Settings that differ: key -> (the parent's value, this run's); JSON values."""

    @property
    def words(self) -> str:
        """`NAME@STEP`, as `--fork` takes it."""
        return f"{PurePath(self.path).name}@{self.step}"


@record
class AlarmRow:
    """Something a person should look at; decides nothing."""

    level: Level
    code: str
    message: str
    step: int | None
    at: float


@record
class FaultRow:
    """A fault, and what it happened to."""

    fault: Fault
    trajectory_id: str | None
    attempt: int
    """0-based: how many tries of the same thing had failed before."""
    at: float


@record
class ControlRow:
    """One line of `control.jsonl` that the writer acted on."""

    action: str
    arguments: Mapping[str, Any]
    at: float


@record
class Status:
    """One screen's worth, asked in one go."""

    run: RunRow
    last_closed_step: int
    """-1 where none is closed."""
    closed: Tallies
    """Sum over all closed steps."""
    open: Tallies
    """What is recorded of steps not yet closed."""
    last_step: StepRow | None
    num_seeds: Mapping[str, int]
    """Split -> how many."""
    num_tasks: int
    num_updates: Mapping[str, int]
    """Phase -> how many."""
    num_faults: int
    """Rows of `faults`, retried ones included."""
    num_alarms: Mapping[str, int]
    """Level -> how many."""
    policy_version: int
    last_seen: float
    """Unix seconds of the newest row; clock of the machine that ran it."""
    launch: Launch | None
    """The newest."""
    parent: ParentRow | None = None
    """Where it was forked from."""
