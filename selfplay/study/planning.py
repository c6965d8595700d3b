"""What a study would play: arms, seeds, hours, endpoint; nothing is played for it.

Hours of play come from results that were measured already, an arm's own first; before there is one, from `minutes` of
the file. Those of measuring come from results alone. A run that was begun counts whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from selfplay.project import Project
from selfplay.study import arms, opening, results
from selfplay.study.arms import Job
from selfplay.study.spec import HELD_OUT, Study
from selfplay.types import record
from selfplay.views.words import duration, plural


@record
class Planned:
    """For people, and as JSON."""

    lines: tuple[str, ...]
    data: dict[str, Any]


def planned(study: Study, chosen: Sequence[Job], *, project: Project, dev: bool) -> Planned:
    """The plan.

    Raises:
        NotFound, UserError: the preset is not there, or a setting of an arm does not fit.
    """
    found = _results(study)
    hours = _hours(found)
    known = [value for value in hours.values() if value is not None]
    owed = arms.owed(chosen, project=project, dev=dev)
    left = {job.folder for job in owed if not arms.done(job, project=project)}
    looks = [_looked(row) for row in found]
    rows: list[dict[str, Any]] = []
    for arm in study.arms:
        mine = [job for job in chosen if job.arm.name == arm.name]
        if not mine:
            continue
        if not arm.supervised:
            arms.config_of(mine[0], project=project)
        done = sum(arms.measured(job, project=project, dev=dev) for job in mine)
        guess = math.fsum(known) / len(known) if known else study.minutes / 60
        own = hours.get(arm.name)
        rows.append(
            {
                "arm": arm.name,
                "about": arm.about,
                "start": arm.start,
                "seeds": [job.seed for job in mine],
                "runs": len({job.folder for job in mine}),
                "measured": done,
                "left": len({job.folder for job in mine} & left),
                "hours": own if own is not None else 0.0 if arm.steps == 0 and arm.start else guess,
                "settings": dict(arm.settings),
            }
        )
    total = math.fsum(row["hours"] * row["left"] for row in rows)
    unmeasured = sum(job.arm.measured and not arms.measured(job, project=project, dev=dev) for job in chosen)
    point = study.endpoint
    where = "held-out tasks of the runs" if point.tasks == HELD_OUT or dev else str(opening.place(study))
    data = {
        "study": study.name,
        "preset": study.preset,
        "budget": study.budget,
        "arms": rows,
        "runs": sum(row["runs"] for row in rows),
        "hours": total,
        "measuring_hours": unmeasured * math.fsum(looks) / len(looks) if looks else None if unmeasured else 0.0,
        "endpoint": {"measure": f"pass@{point.k}", "attempts": point.attempts, "tasks": where, "digest": point.digest},
        "compare": [list(pair) for pair in point.compare],
        "openings": len(opening.openings(study.results)),
    }
    return Planned(lines=tuple(_lines(study, data)), data=data)


def _lines(study: Study, data: dict[str, Any]) -> list[str]:
    point = study.endpoint
    lines = [
        f"{study.name}: {study.about}",
        f"preset    {study.preset}, {len(study.settings)} settings over it",
        f"budget    {study.budget:,} tokens generated and trained, after the start",
        f"endpoint  pass@{point.k} of {point.attempts} samples at temperature {point.temperature:g}, on "
        f"{data['endpoint']['tasks']}",
        f"compared  {', '.join(f'{second} with {first}' for first, second in point.compare)}",
        f"opened    {plural(data['openings'], 'time')} so far",
        "",
    ]
    for row in data["arms"]:
        seeds = ", ".join(map(str, row["seeds"]))
        start = f"from {row['start']}" if row["start"] else "from the model"
        each = duration(3600 * row["hours"])
        alike = "; one run for all" if row["runs"] < len(row["seeds"]) else ""
        how = f"{row['measured']} measured" if study.arm(row["arm"]).measured else "for others to build upon"
        how += f", {row['left']} to play" if row["left"] else ""
        lines.append(f"{row['arm']:<14} seeds {seeds}{alike}; {start}; about {each} each; {how}")
        if row["about"]:
            lines.append(f"{'':<14} {row['about']}")
    left = duration(3600 * data["hours"])
    asked = "" if data["measuring_hours"] is None else f", {data['measuring_hours']:.1f} h to measure"
    return [
        *lines,
        "",
        f"{data['runs']} runs; about {left} ({data['hours']:.1f} h) of this machine still to play{asked}",
    ]


def _results(study: Study) -> list[dict[str, Any]]:
    folders = (study.results, study.results / "dev")
    return [row for folder in folders if folder.is_dir() for row in results.read(folder)]


def _hours(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Arm -> hours a run, where one was measured."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["run"] is not None:
            # note: results of earlier versions do not say how long their warm-up took.
            seconds = row["run"]["seconds"] + row["run"].get("warmup_seconds", 0.0)
            found.setdefault(row["arm"], []).append(seconds / 3600)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def _looked(row: dict[str, Any]) -> float:
    """Hours that measuring it took."""
    seconds = (one["seconds"] for name, one in row["looked"].items() if not name.endswith(results.UNLIKE))
    return math.fsum(seconds) / 3600
