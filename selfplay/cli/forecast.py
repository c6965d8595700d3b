"""How long a run will take and how much disk, told from the runs that lie here: rows of `selfplay run --plan`.

Only a run that plays the same amount of the same with the same model says anything; the newest of those is asked for
its newest steps. Nothing is guessed where there is none.

Not here: memory (`sizing`), what is played (`plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from selfplay.cli import runs
from selfplay.errors import SelfplayError
from selfplay.project import Project
from selfplay.types import record
from selfplay.views.plan import PlanRow
from selfplay.views.words import duration, size

if TYPE_CHECKING:
    from selfplay.config import Config

ALIKE = (
    *("run.game", "policy.model", "policy.backend", "sandbox.kind"),
    *("roles.proposer", "roles.solver", "curriculum.seeds", "play.proposals", "play.attempts"),
)
"""Settings that decide what a step costs: a run is alike where all of them are equal."""
STEPS = 10
"""Newest closed steps whose median is taken."""


@record
class Past:
    """What a run that is alike took."""

    name: str
    step_seconds: float
    """The median of its newest steps."""
    step_bytes: float
    """What its ledger grew by in a step."""


def rows(config: Config, project: Project, folder: Path) -> Iterator[PlanRow]:
    """Time and disk of the steps that are still to be played in `folder`."""
    past = next((found for run in runs.all_runs(project) if (found := _past(run, config)) is not None), None)
    if past is None:
        words = "not known: no run here played as much of the same with this model and sandbox"
        yield PlanRow(section="cost", name="time", value=words)
        return
    left = max(0, config.run.steps - _closed(folder))
    told = f"{left} steps of {duration(past.step_seconds)}, as run {past.name} took; a warm-up aside"
    yield PlanRow(section="cost", name="time", value=f"about {duration(left * past.step_seconds)}", note=told)
    yield PlanRow(section="cost", name="disk", value=f"about {size(left * past.step_bytes)}", note="saves aside")


def _past(run: Path, config: Config) -> Past | None:
    """What `run` took, where it is alike and has closed a step."""
    from selfplay.ledger import Ledger

    wanted = config.values()
    try:
        with Ledger.read(run) as reader:
            recorded = reader.run_row().config
            closed = reader.last_closed_step() + 1
            if not closed or any(recorded.get(key) != wanted[key] for key in ALIKE):
                return None
            newest = reader.step_rows(after=closed - 1 - STEPS)
    except SelfplayError:
        return None
    seconds = [one.closed_at - one.opened_at for one in newest if one.opened_at is not None]
    if not seconds:
        return None
    num_bytes = (run / runs.LEDGER).stat().st_size
    return Past(name=run.name, step_seconds=median(seconds), step_bytes=num_bytes / closed)


def _closed(folder: Path) -> int:
    """Steps of the run in `folder` that are closed; 0 where there is none."""
    from selfplay.ledger import Ledger

    if not (folder / runs.LEDGER).is_file():
        return 0
    with Ledger.read(folder) as reader:
        return reader.last_closed_step() + 1
