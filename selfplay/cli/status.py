"""`selfplay status`: where runs stand, dead or alive, from their ledgers.

Not here: the screens (`views.status`).
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import SelfplayError

if TYPE_CHECKING:
    from selfplay.ledger import Launch, Reader, Status
    from selfplay.project import Project
    from selfplay.views.status import RunView


COSTS = 10
"""Closed steps that costs are taken over."""
ALARMS = 3
"""How many of the newest are shown."""


@click.command("status", short_help="Where runs stand; without RUN, one row each.")
@click.argument("run", required=False)
@common
def command(session: Session, run: str | None) -> int:
    """Where runs stand, running or not. RUN is a name, a unique prefix, a path or `last`.

    The exit code is 1 where the run raised an alarm of level error.

    \b
    Examples:
      selfplay status
      selfplay status last --json
    """
    return _all(session) if run is None else _one(session, run)


def _one(session: Session, text: str) -> int:
    from selfplay.views.status import run_data, run_screen

    folder = runs.find_run(text, project=session.project)
    view = look(folder, whole=True)
    if session.json:
        session.answer("status", run_data(view), run=view.name)
    else:
        session.console().print(run_screen(view, now=time.time()))
        session.say("\n" + "\n".join(_next(view, folder, project=session.project)))
    return 1 if view.status.num_alarms.get("error") else 0


def _all(session: Session) -> int:
    from selfplay.views.status import run_data, runs_table

    views, broken = [], []
    for folder in runs.all_runs(session.project):
        try:
            views.append(look(folder))
        except SelfplayError as error:
            broken.append({"name": folder.name, "kind": error.kind, "message": error.message})
    if session.json:
        session.answer("status", {"runs": [run_data(view) for view in views], "unreadable": broken})
        return 0
    if views:
        session.console().print(runs_table(views, now=time.time()))
    for row in broken:
        session.say(f"{row['name']}: {row['message']}")
    if not views and not broken:
        session.say(f"no runs in {session.project.runs}: selfplay run starts one, selfplay demo the toy game")
    for view in views:
        for line in _onwards(view, Path(view.folder), project=session.project):
            session.say(line)
    if views:
        session.say(f"  look      selfplay status {views[0].name}")
    return 0


def _onwards(view: RunView, folder: Path, *, project: Project) -> list[str]:
    """How it goes on: one that no name means does with whatever played it, as a study."""
    if view.paused:
        return [f"  resume    selfplay resume {runs.typed(folder, project=project)}"]
    named = view.resumable and runs.is_named(folder, project=project)
    return [f"  resume    selfplay run --name {view.name}"] if named else []


def _next(view: RunView, folder: Path, *, project: Project) -> list[str]:
    """What can be typed next."""
    lines, run = _onwards(view, folder, project=project), runs.typed(folder, project=project)
    lines += [f"  live      selfplay watch {run}"] if view.state == "running" else []
    lines += [f"  look      selfplay inspect {run}"]
    return lines + ([f"  report    selfplay report {run}"] if view.closed else [])


def look(folder: Path, *, whole: bool = False) -> RunView:
    """The run in `folder`, as the screens see it; with its newest evaluation and its costs only where `whole`.

    Raises:
        NotFound, UserError, RunFailed: as `Ledger.read`.
    """
    from dataclasses import replace

    from selfplay.ledger import Ledger
    from selfplay.views.evaluation import newest

    with Ledger.read(folder) as reader:
        view = view_of(reader, folder)
        alarms = reader.alarms()[-ALARMS:] if view.status.num_alarms else ()
        view = replace(view, alarms=alarms)
        return replace(view, evaluation=newest(reader), cost=_cost(reader, view.closed)) if whole else view


def _cost(reader: Reader, closed: int) -> Mapping[str, float] | None:
    """What an accepted task of the newest closed steps cost; the cost of asking does not grow with the run."""
    from selfplay.ledger import watching
    from selfplay.views.cost import cost_of

    since = max(0, closed - COSTS)
    spent = reader.ask(lambda ask: watching.spent(ask, since, closed))
    return cost_of(reader.step_rows(after=since - 1), spent)


def view_of(reader: Reader, folder: Path) -> RunView:
    """Where the run of an open ledger stands, without its alarms and its evaluation."""
    from dataclasses import replace

    from selfplay.ledger import control
    from selfplay.ledger.lock import holder
    from selfplay.views.status import RunView

    # note: who holds it is asked first: a run that ends in between has then told its end.
    held = holder(folder)
    status = reader.status()
    steps = _planned_steps(folder, otherwise=status.run.config.get("run.steps"))
    launch = _player(reader, status)
    return RunView(
        name=folder.name,
        folder=str(folder),
        status=replace(status, launch=launch),
        steps=steps,
        raised=_raised(reader, status, launch, steps=steps),
        holder=f"process {held.pid} on {held.host}" if held is not None else None,
        paused=held is not None and control.paused(reader.control(), status.launch),
    )


def _player(reader: Reader, status: Status) -> Launch | None:
    """The newest launch that played, or began to."""
    from selfplay.ledger.records import REVERIFIED

    if status.launch is None or status.launch.how not in REVERIFIED:
        return status.launch
    return next((one for one in reversed(reader.launches()) if one.how not in REVERIFIED), status.launch)


def _raised(reader: Reader, status: Status, launch: Launch | None, *, steps: int) -> bool:
    """Were more steps asked for than a launch knew of that played all it was asked for?

    Few steps say nothing: a study's run has more of them than its budget pays for. But those are as it began with, and
    what was `set` after its last step closed, as while that is saved, came too late for the launch.
    """
    if launch is None or launch.how != "done" or status.last_closed_step + 1 >= steps:
        return False
    if steps != status.run.config.get("run.steps"):
        return True
    since = status.last_step.closed_at if status.last_step is not None else launch.started_at
    asked = [row.arguments for row in reader.control() if row.action == "set" and row.at >= since]
    return any("run.steps" in arguments and "refused" not in arguments for arguments in asked)


def _planned_steps(folder: Path, *, otherwise: object) -> int:
    """Steps in all. From config.toml, which the newest launch wrote; the ledger keeps the first launch's."""
    try:
        steps = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))["run"]["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        steps = otherwise
    return steps if isinstance(steps, int) else 0
