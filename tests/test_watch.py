"""Alarms of real toy runs: told when they begin and once, by whichever launch; and where they end the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.ledger import AlarmRow, Ledger
from selfplay.watch import history_of

Play = Callable[..., Outcome]

LOW = ("alarms.entropy_floor=50", "play.proposals=8", "play.attempts=8")
"""Higher than any entropy, so that the alarm sounds as soon as there are enough updates; and enough play for those."""


def entropies(folder: Path) -> list[AlarmRow]:
    with Ledger.read(folder) as reader:
        return [alarm for alarm in reader.alarms() if alarm.code == "entropy"]


def test_an_alarm_of_a_run_is_told_once_however_often_it_is_launched(tmp_path: Path, play: Play) -> None:
    events: list[Event] = []
    folder = tmp_path / "run"
    play(folder, *LOW, steps=4, observe=events.append)
    [alarm] = entropies(folder)
    assert alarm.level == "warning"
    assert "nats, below 50" in alarm.message
    [event] = [e for e in events if e.kind == "alarm" and e.data["name"] == "entropy"]
    assert (event.step, event.data["text"]) == (alarm.step, alarm.message)
    assert "play.temperature" in event.data["fix"]
    play(folder, *LOW, steps=5)
    assert entropies(folder) == [alarm]


def test_what_a_killed_launch_had_not_told_the_next_one_tells(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"

    def die(event: Event) -> None:
        if event.kind == "step" and event.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(folder, *LOW, steps=4, observe=die)
    assert entropies(folder) == []
    play(folder, *LOW, steps=4)
    assert len(entropies(folder)) == 1


def test_an_alarm_in_the_list_ends_the_run_and_the_same_command_goes_on(tmp_path: Path, play: Play) -> None:
    folder, stop = tmp_path / "run", 'alarms.stop=["entropy", "agreement"]'
    with pytest.raises(RunFailed, match="alarm `entropy` ended the run") as error:
        play(folder, *LOW, stop, "run.save_every=10", steps=5)
    assert error.value.exit_code == 1
    assert 'alarms.stop=["agreement"]' in error.value.hint
    [alarm] = entropies(folder)
    assert alarm.level == "error"
    with Ledger.read(folder) as reader:
        last = reader.last_closed_step()
        assert [save.step for save in reader.saves()] == [last] == [alarm.step]
    assert last < 4
    assert play(folder, *LOW, stop, "run.save_every=10", steps=5) == Outcome(stop="done", steps=5)
    assert entropies(folder) == [alarm]


def test_a_history_holds_what_the_steps_left(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=2)
    with Ledger.read(folder) as reader:
        history = history_of(reader, evaluated=lambda done: True)
    assert [point.step for point in history] == [0, 1]
    for point in history:
        assert point.counts["gibberish"] == 0
        assert set(point.tallies) <= {"propose/echo_proposer", "attempt/echo_solver"}
        assert "probe_gap" in point.metrics
        assert point.held_out is None, "nobody looked"
