"""A watched run as plain lines: one for each step that closed, the same as `selfplay run` writes off a terminal.

Not here: the screen (`watch_screen`), where the lines go (`cli.watch`).
"""

from __future__ import annotations

from selfplay.events import Event
from selfplay.ledger import Reader
from selfplay.views.progress import Progress, line
from selfplay.views.watch import Watched, step_event, updates_after


class Follower:
    """Says what is new since it was asked last; the first time only the newest step, and no alarm of the past."""

    def __init__(self, reader: Reader, *, quiet: bool = False) -> None:
        """`quiet`: alarms only."""
        self._reader, self._quiet = reader, quiet
        self._progress: Progress | None = None
        self._told = -1
        self._alarms: int | None = None

    def lines(self, watched: Watched) -> list[str]:
        """The lines that are due."""
        run, first = watched.run, self._progress is None
        found: list[Event] = []
        if self._progress is None:
            self._progress = Progress(run=run.name)
            config = run.status.run.config
            facts = {"run": run.name, "game": run.status.run.game, "model": config.get("policy.model")}
            found.append(
                Event(kind="launch", data={**facts, "done": run.closed, "steps": run.steps, "folder": run.folder})
            )
            self._told = run.status.last_closed_step - 1
        self._progress.facts["steps"] = run.steps
        found += self._steps(run.status.last_closed_step)
        found += self._new_alarms(watched, first=first)
        shown = []
        for event in found:
            self._progress.take(event, now=run.status.last_seen)
            text = line(event, self._progress)
            if text is not None and (not self._quiet or event.kind == "alarm"):
                shown.append(text)
        return shown

    def _steps(self, last: int) -> list[Event]:
        if last <= self._told:
            return []
        updates = updates_after(self._reader, self._told)
        rows = self._reader.step_rows(after=self._told)
        self._told = max(self._told, *(row.step for row in rows))
        return [step_event(row, updates.get(row.step)) for row in rows]

    def _new_alarms(self, watched: Watched, *, first: bool) -> list[Event]:
        count, fixes = sum(watched.run.status.num_alarms.values()), {one.code: one.fix for one in watched.alarms}
        if first or self._alarms is None:
            self._alarms = count
            return []
        fresh = self._reader.alarms()[self._alarms :] if count > self._alarms else ()
        self._alarms += len(fresh)
        return [
            Event(
                kind="alarm",
                step=one.step,
                data={"level": one.level, "text": one.message, "name": one.code, "fix": fixes.get(one.code, "")},
            )
            for one in fresh
        ]
