"""A process that is asked to pause, go on, stop, or play with other settings, while it plays the toy game."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay import control as steering
from selfplay.build import Outcome
from selfplay.config import from_run
from selfplay.errors import UserError
from selfplay.events import Event, Interrupt
from selfplay.ledger import Ledger, control
from selfplay.ledger.control import Action
from selfplay.ledger.lock import holder
from selfplay.project import Project

Play = Callable[..., Outcome]


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


class Asks:
    """An observer that asks the run for something once a step is closed, and waits until it has heard."""

    def __init__(self, folder: Path, *asks: tuple[int, Action, dict[str, Any]]) -> None:
        self.folder, self.asks = folder, list(asks)
        self.notes: list[str] = []
        self.steps: list[int] = []

    def __call__(self, event: Event) -> None:
        self.notes += [str(event.data.get("text", ""))] if event.kind == "note" else []
        self.steps += [event.data["steps"]] if event.kind == "note" and "steps" in event.data else []
        if event.kind != "step" or not self.asks or event.step != self.asks[0][0]:
            return
        _, action, arguments = self.asks.pop(0)
        held = holder(self.folder)
        assert held is not None
        control.send(self.folder, held, action=action, arguments=arguments)


def rows(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    with Ledger.read(folder) as ledger:
        return [(row.action, {k: v for k, v in row.arguments.items() if k != "id"}) for row in ledger.control()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "EVERY", 0.01)


def test_a_run_that_was_stopped_and_set_equals_one_that_was_not(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "whole", "run.save_every=1", steps=12)
    folder = tmp_path / "parts"
    stops = Asks(folder, (1, "stop", {}))
    outcome = play(folder, "run.save_every=1", steps=60, observe=stops)
    assert (outcome.stop, outcome.steps < 500) == ("interrupted", True)
    assert "asked to stop: turns in flight end first" in stops.notes
    sets = Asks(folder, (outcome.steps + 1, "set", {"run.steps": "12"}))
    assert play(folder, "run.save_every=1", steps=60, observe=sets).steps >= 12
    assert (stops.steps, sets.steps) == ([], [12])
    assert rows(folder) == [("stop", {}), ("set", {"run.steps": "12"})]
    with Ledger.read(folder) as parts:
        closed = parts.last_closed_step() + 1
    assert "steps = 12 " in (folder / "config.toml").read_text()
    play(tmp_path / "whole", "run.save_every=1", steps=closed)
    assert digests(folder) == digests(tmp_path / "whole")


def test_a_paused_run_begins_nothing_until_it_goes_on(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    asks = Asks(folder, (1, "pause", {}))
    done: list[Outcome] = []
    thread = threading.Thread(target=lambda: done.append(play(folder, steps=5, observe=asks)))
    thread.start()
    until = time.monotonic() + 600
    while not any(note.startswith("paused") for note in asks.notes) and time.monotonic() < until:
        time.sleep(0.01)
    while time.monotonic() < until:
        before = _played(folder)
        time.sleep(0.7)
        if _played(folder) == before:
            break
    assert thread.is_alive()
    held = holder(folder)
    assert held is not None
    with Ledger.read(folder) as ledger:
        assert control.paused(ledger.control(), ledger.launches()[-1])
    control.send(folder, held, action="resume", arguments={})
    thread.join(timeout=600)
    assert done[0].steps == 5
    with Ledger.read(folder) as ledger:
        assert sum(row.stage_seconds.get("paused", 0.0) for row in ledger.step_rows()) > 0.5
        assert ledger.check() == ()


def _played(folder: Path) -> int:
    with Ledger.read(folder) as ledger:
        status = ledger.status()
        return sum(tally.played for tally in (*status.closed.values(), *status.open.values()))


def test_a_pause_ends_where_the_run_is_to_stop(tmp_path: Path, play: Play) -> None:
    interrupt = Interrupt()
    interrupt.paused = True
    threading.Timer(0.5, interrupt.press).start()
    assert play(tmp_path / "run", steps=3, interrupt=interrupt).stop == "interrupted"


def test_what_was_asked_of_another_launch_is_not_done(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    with Ledger.open(folder):
        held = holder(folder)
        assert held is not None
        control.send(folder, held, action="stop", arguments={})
    assert play(folder, steps=3).stop == "done"
    assert rows(folder) == []


def test_what_cannot_be_set_is_refused_and_recorded(tmp_path: Path, play: Play, project: Project) -> None:
    folder = tmp_path / "run"
    asks = Asks(folder, (0, "set", {"learner.lr": "1"}))
    play(folder, steps=8, observe=asks)
    [(action, arguments)] = rows(folder)
    assert action == "set"
    assert "it affects results" in arguments["refused"]
    assert from_run(folder, project=project, environ={}).learner.lr != 1


@pytest.mark.parametrize(
    ("sets", "message", "hint"),
    [
        ({"learner.lr": "1"}, "it affects results", "--fork run --name run-2 -s learner.lr=VALUE"),
        ({"sandbox.workers": "3"}, "it is read as a launch begins", "selfplay run --name run -s sandbox.workers=VALUE"),
        ({"run.stepz": "3"}, "unknown key `run.stepz`", "did you mean `run.steps`?"),
        ({"run.steps": "many"}, "expected a whole number", "Steps to play in all"),
        ({"alarms.stop": '["entropi"]'}, "which is no alarm", "did you mean `entropy`?"),
    ],
)
def test_which_keys_can_be_set(
    tmp_path: Path, play: Play, project: Project, sets: dict[str, str], message: str, hint: str
) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    config = from_run(folder, project=project, environ={})
    with pytest.raises(UserError, match=message) as caught:
        steering.changed(config, sets, project=project, folder=folder)
    assert hint in caught.value.hint
    found = steering.changed(config, {"alarms.stop": '["entropy"]'}, project=project, folder=folder)
    assert found.alarms.stop == ("entropy",)
    assert found.digest == config.digest


def test_every_live_key_is_outside_the_digest(project: Project) -> None:
    from selfplay.config.settings import affects_results

    assert not any(affects_results(key) for key in steering.LIVE)
