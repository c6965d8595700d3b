"""Does what `control.jsonl` asks of a running process: stop, pause, resume, set; and records each.

    stop     as one Ctrl-C: turns in flight end, the books are closed, exit code 75
    pause    no reply is begun until `resume`; what is being sampled or verified ends
    set      a key of `LIVE` has another value from the next step on; config.toml is written anew

A line is recorded before its effect can be: what was asked stands in the ledger whatever follows. None of this is part
of what two runs are compared by (guarantee C).

Not here: the file (`ledger.control`), who waits for a pause (`pools`), where settings take effect (`loop`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.alarms import ALARMS
from selfplay.config import Config, from_run
from selfplay.errors import SelfplayError, UserError
from selfplay.events import Event, Interrupt, Observer
from selfplay.ledger import Ledger, control
from selfplay.ledger.control import Line
from selfplay.ledger.lock import holder
from selfplay.project import Project, did_you_mean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from selfplay.loop import Settings

EVERY = 0.3
"""Seconds between two looks at the file."""

LIVE = ("run.steps", "run.save_every", "run.keep_saves", "alarms.stop")
"""Keys outside the digest that the loop asks for anew at each step."""


def changed(config: Config, sets: Mapping[str, str], *, project: Project, folder: Path) -> Config:
    """The run's configuration with other values of live keys; `sets` are `table.key` -> value, as behind `-s`.

    Raises:
        UserError: a key is unknown, is no live one, or its value does not fit.
    """
    known = config.values()
    for key in sets:
        if key in known and key not in LIVE:
            raise UserError(
                f"`{key}` cannot be changed while the run plays: {_why_not(key)}", hint=_instead(key, folder)
            )
        if key not in known:
            near = did_you_mean(key, LIVE) or did_you_mean(key, known)
            raise UserError(f"unknown key `{key}`", hint=f"{near}What can be set: {', '.join(LIVE)}")
    found = from_run(folder, project=project, sets=[f"{key}={value}" for key, value in sets.items()], environ={})
    if unknown := [name for name in found.alarms.stop if name not in ALARMS]:
        raise UserError(
            f"`alarms.stop` names `{unknown[0]}`, which is no alarm",
            hint=f"{did_you_mean(unknown[0], ALARMS)}All alarms: selfplay ls alarms",
        )
    return found


def _why_not(key: str) -> str:
    from selfplay.config.settings import affects_results

    if affects_results(key):
        return "it affects results, so a run with another value is another run"
    return "it is read as a launch begins"


def _instead(key: str, folder: Path) -> str:
    from selfplay.config.settings import affects_results

    name = folder.name
    if affects_results(key):
        return f"take its weights along into another run: selfplay run --fork {name} --name {name}-2 -s {key}=VALUE"
    return f"selfplay stop {name}, then: selfplay run --name {name} -s {key}=VALUE"


class Control:
    """Reads what is asked of this launch and does it; the loop asks `steer` what the settings are."""

    def __init__(
        self, folder: Path, *, ledger: Ledger, config: Config, project: Project, interrupt: Interrupt, observe: Observer
    ) -> None:
        """The run in `folder` is held by this process."""
        self._folder, self._ledger, self._project = folder, ledger, project
        self._config, self._interrupt, self._observe = config, interrupt, observe
        self._held = holder(folder)
        self._read = 0
        self._given: dict[str, Any] = {}

    def steer(self, settings: Settings) -> Settings:
        """The settings of the next step."""
        given = {key.removeprefix("run."): value for key, value in self._given.items() if key.startswith("run.")}
        if "alarms.stop" in self._given:
            given["alarms"] = replace(settings.alarms, stop=self._given["alarms.stop"])
        return replace(settings, **given)

    def look(self) -> None:
        """Do what was asked for since the last look."""
        if self._held is None:
            return
        lines, self._read = control.read(self._folder, since=self._read)
        for line in lines:
            if line.is_for(self._held):
                self._do(line)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Look every `EVERY` seconds while inside."""
        task = asyncio.ensure_future(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(EVERY)

    def _do(self, line: Line) -> None:
        arguments = dict(line.arguments)
        data: dict[str, Any] = {}
        try:
            said = self._acted(line)
            # note: the screen counts by it.
            data = {"steps": self._given["run.steps"]} if line.action == "set" and "run.steps" in arguments else {}
        except SelfplayError as error:
            # note: a line that the command would have refused; written by hand, or by another version.
            arguments |= {"refused": error.message}
            said = f"`{line.action}` was asked for and refused: {error.message}"
        self._ledger.append_control(action=line.action, arguments={**arguments, "id": line.id})
        self._observe(Event(kind="note", data={"text": said, **data}))

    def _acted(self, line: Line) -> str:
        name = self._folder.name
        if line.action == "stop":
            if not self._interrupt.level:
                self._interrupt.press()
            return "asked to stop: turns in flight end first"
        if line.action == "pause":
            self._interrupt.paused = True
            return f"paused: no reply is begun; go on: selfplay resume {name}"
        if line.action == "resume":
            self._interrupt.paused = False
            return "going on"
        return self._set({str(key): str(value) for key, value in line.arguments.items()})

    def _set(self, sets: Mapping[str, str]) -> str:
        config = changed(self._config, sets, project=self._project, folder=self._folder)
        config.write(self._folder)
        self._config = config
        values = config.values()
        self._given |= {"alarms.stop": config.alarms.stop} if "alarms.stop" in sets else {}
        self._given |= {key: values[key] for key in sets if key != "alarms.stop"}
        return "from the next step on: " + ", ".join(f"{key} = {values[key]}" for key in sets)
