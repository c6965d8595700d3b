"""Coming back: from a save or from nothing, and never to other weights than the recorded ones."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.errors import RunFailed, UserError
from selfplay.events import Event
from selfplay.ledger import Ledger

Play = Callable[..., Outcome]


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def test_updates_since_the_last_save_are_applied_again(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "whole", steps=6)
    folder = tmp_path / "parts"
    play(folder, "run.save_every=100", steps=4)
    shutil.rmtree(folder / "weights")
    notes: list[str] = []

    def observe(event: Event) -> None:
        notes.append(str(event.data.get("text", "")))

    play(folder, steps=6, observe=observe)
    assert any("re-applying recorded update 1 of" in note for note in notes)
    assert digests(folder) == digests(tmp_path / "whole")


def test_other_weights_than_the_recorded_ones_stop_the_run(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=4)
    shutil.rmtree(folder / "weights")
    with sqlite3.connect(folder / "ledger.db") as connection:
        # note: the ledger's own triggers refuse to change a row.
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE updates SET weights_digest = 'other' WHERE skipped IS NULL")
    with pytest.raises(RunFailed, match=r"update \d of phase play gives other weights"):
        play(folder, steps=5)


def test_a_torn_save_is_named_and_refused(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=2)
    (weights,) = folder.glob("weights/step_000001/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RunFailed, match="step_000001"):
        play(folder, steps=3)


def test_only_the_newest_saves_are_kept(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", "run.save_every=1", "run.keep_saves=2", steps=5)
    assert [f.name for f in sorted((tmp_path / "run" / "weights").iterdir())] == ["step_000003", "step_000004"]


def test_a_run_of_other_settings_is_refused_by_naming_them(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=1)
    before = digests(folder)
    with pytest.raises(UserError, match=r"learner\.lr\s+0\.001 -> 0\.5"):
        play(folder, "learner.lr=0.5", steps=2)
    assert digests(folder) == before


def test_settings_outside_the_digest_may_change(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", steps=1)
    assert play(tmp_path / "run", "run.save_every=7", "policy.max_rows=3", steps=2).steps == 2


def test_the_kl_reference_is_where_self_play_started(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, "learner.kl=0.05", steps=2)
    play(folder, "learner.kl=0.05", steps=4)
    with Ledger.read(folder) as ledger:
        references = {u.reference_digest for u in ledger.updates("play") if u.skipped is None}
        start = next(save for save in ledger.saves() if save.step < 0)
    assert references == {start.weights_digest}
