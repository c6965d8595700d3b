"""A run is built whole or not at all, and what failed before it began leaves nothing behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.errors import Held, RunFailed, UserError
from selfplay.events import Event
from selfplay.ledger import Ledger

Play = Callable[..., Outcome]


def test_a_run_that_never_began_leaves_its_name_free(tmp_path: Path, play: Play) -> None:
    with pytest.raises(UserError, match="no model"):
        play(tmp_path / "run", "policy.model=smollm2-13m")
    assert not (tmp_path / "run").exists()
    assert play(tmp_path / "run", steps=1).steps == 1


def test_a_run_that_had_begun_is_kept(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    with pytest.raises(UserError, match="other settings"):
        play(folder, "policy.model=smollm2-13m")
    with Ledger.read(folder) as ledger:
        assert ledger.last_closed_step() == 0


def test_a_finished_run_loads_nothing_and_says_done(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=4)
    events: list[Event] = []
    assert play(folder, steps=4, observe=events.append) == Outcome(stop="done", steps=4)
    assert events == []
    shutil.rmtree(folder / "weights")
    assert play(folder, steps=4, observe=events.append).steps == 4
    assert any("re-applying" in str(event.data.get("text")) for event in events)


def test_a_held_run_is_left_alone(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    with Ledger.open(folder), pytest.raises(Held):
        play(folder, steps=2)
    assert play(folder, steps=2).steps == 2


def test_how_each_launch_ended_is_on_record(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    play(folder, steps=2)
    with Ledger.read(folder) as ledger:
        assert [launch.how for launch in ledger.launches()] == ["done", "done"]
    assert (folder / "config.toml").read_text().startswith("# The resolved settings")


def test_a_run_whose_ledger_is_gone_is_not_begun_anew(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=2)
    (folder / "ledger.db").unlink()
    before = sorted(folder.rglob("*"))
    with pytest.raises(RunFailed, match="the ledger of run `run` is gone, and weights/step_000001 is still there"):
        play(folder, steps=2)
    assert sorted(folder.rglob("*")) == before
    shutil.rmtree(folder / "weights")
    (folder / "ledger.db-wal").write_bytes(b"rows")
    with pytest.raises(RunFailed, match=r"ledger\.db-wal is still there"):
        play(folder, steps=2)


def test_a_run_whose_newest_rows_are_lost_does_not_go_on(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, "run.save_every=1", steps=2)
    shutil.copy(folder / "ledger.db", tmp_path / "older.db")
    play(folder, "run.save_every=1", steps=3)
    shutil.copy(tmp_path / "older.db", folder / "ledger.db")
    with pytest.raises(RunFailed, match="ends with step 1, and weights/step_000002 was saved after it") as error:
        play(folder, "run.save_every=1", steps=4)
    assert (folder / "weights" / "step_000002").is_dir()
    assert f"move {folder / 'weights' / 'step_000002'} away" in error.value.hint
    (folder / "weights" / "step_000002").rename(tmp_path / "aside")
    assert play(folder, "run.save_every=1", steps=4).steps == 4
    play(tmp_path / "whole", "run.save_every=1", steps=4)
    with Ledger.read(folder) as again, Ledger.read(tmp_path / "whole") as whole:
        assert again.comparable() == whole.comparable()
