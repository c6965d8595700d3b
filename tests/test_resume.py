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


def test_log_probabilities_that_no_kept_save_needs_are_pruned(tmp_path: Path, play: Play) -> None:
    every = ("run.save_every=2", "run.keep_saves=1")
    play(tmp_path / "whole", *every, steps=7)
    folder = tmp_path / "parts"
    for steps in (1, 4, 5, 7):
        play(folder, *every, steps=steps)
    assert digests(folder) == digests(tmp_path / "whole")
    with Ledger.read(folder) as ledger:
        assert ledger.last_pruned_step() == 5
        assert all(one.turns[0].token_ids for one in ledger.trajectories(step=0, stage="attempt"))
        assert ledger.check() == ()
    shutil.rmtree(folder / "weights")
    with pytest.raises(RunFailed, match=r"update \d cannot be applied again: its log-probabilities are pruned"):
        play(folder, *every, steps=8)


def test_runs_that_saved_otherwise_are_compared_by_what_both_have(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "often", "run.save_every=1", "run.keep_saves=1", steps=6)
    play(tmp_path / "rarely", "run.save_every=4", "run.keep_saves=1", steps=6)
    with Ledger.read(tmp_path / "often") as often, Ledger.read(tmp_path / "rarely") as rarely:
        pruned = max(often.last_pruned_step(), rarely.last_pruned_step())
        assert often.comparable() != rarely.comparable()
        assert often.comparable(logprobs_from=pruned + 1) == rarely.comparable(logprobs_from=pruned + 1)


def test_other_weights_than_the_recorded_ones_stop_the_run(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=4)
    shutil.rmtree(folder / "weights")
    with sqlite3.connect(folder / "ledger.db") as connection:
        # note: the ledger's own triggers refuse to change a row.
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for table in ("updates", "saves"):
            connection.execute(f"UPDATE {table} SET weights_digest = 'other'")
    with pytest.raises(RunFailed, match=r"update \d of phase play gives other weights"):
        play(folder, steps=5)


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [truncated, flipped, Path.unlink])
@pytest.mark.parametrize("part", ["model.safetensors", "learner.safetensors"])
def test_a_damaged_save_is_named_and_the_one_before_it_serves(
    tmp_path: Path, play: Play, damage: Callable[[Path], None], part: str
) -> None:
    play(tmp_path / "whole", "run.save_every=1", steps=5)
    folder = tmp_path / "parts"
    play(folder, "run.save_every=1", steps=4)
    damage(folder / "weights" / "step_000003" / part)
    alarms: list[str] = []

    def observe(event: Event) -> None:
        if event.kind == "alarm" and "the save" in str(event.data["text"]):
            alarms.append(str(event.data["text"]))

    play(folder, "run.save_every=1", steps=5, observe=observe)
    assert len(alarms) == 1
    assert "step_000003" in alarms[0]
    assert "damaged_step_000003" in alarms[0]
    assert (folder / "weights" / "damaged_step_000003").is_dir()
    assert digests(folder) == digests(tmp_path / "whole")


def test_every_save_damaged_is_the_whole_redo_log(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "whole", steps=5)
    folder = tmp_path / "parts"
    play(folder, steps=4)
    for weights in folder.glob("weights/step_*/model.safetensors"):
        truncated(weights)
    play(folder, steps=5)
    assert digests(folder) == digests(tmp_path / "whole")


def test_what_a_killed_launch_left_half_written_is_removed(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, steps=2)
    for name in (".step_000003.999999999.part", ".step_000000.old", "step_000009"):
        (folder / "weights" / name).mkdir()
        (folder / "weights" / name / "model.safetensors").write_text("half")
    play(folder, steps=4)
    assert [f.name for f in sorted((folder / "weights").iterdir())] == ["step_000001", "step_000003"]
    (folder / "weights" / ".step_000001.old").mkdir()
    play(folder, steps=4)
    assert [f.name for f in sorted((folder / "weights").iterdir())] == ["step_000001", "step_000003"], "nothing to play"


def test_what_somebody_laid_beside_the_saves_stays_and_is_in_nobodys_way(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, "run.save_every=1", "run.keep_saves=2", steps=2)
    weights = folder / "weights"
    before = {place.name for place in weights.iterdir()}
    for name in ("step_000001.bak", "step_000009", "step_old", "warmup-mine"):
        shutil.copytree(weights / "step_000001", weights / name)
    (weights / "step_000001.tar.gz").write_bytes(b"packed")
    shutil.rmtree(weights / "step_000009")
    (weights / "step_000009").mkdir()
    play(folder, "run.save_every=1", "run.keep_saves=2", steps=4)
    there = {place.name for place in weights.iterdir()}
    assert {"step_000001.bak", "step_000001.tar.gz", "step_old", "warmup-mine"} < there
    assert "step_000009" not in there
    assert {"step_000002", "step_000003"} < there - before


def test_the_weights_after_the_last_step_are_saved_by_the_next_launch(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, "run.save_every=100", steps=2)
    shutil.rmtree(folder / "weights" / "step_000001")
    play(folder, "run.save_every=100", steps=2)
    assert (folder / "weights" / "step_000001" / "model.safetensors").is_file()


def test_updates_with_a_kl_term_are_applied_again(tmp_path: Path, play: Play) -> None:
    sets = ("learner.kl=0.05", "run.save_every=100")
    play(tmp_path / "whole", *sets, steps=4)
    folder = tmp_path / "parts"
    play(folder, *sets, steps=3)
    shutil.rmtree(folder / "weights" / "step_000002")
    play(folder, *sets, steps=4)
    assert digests(folder) == digests(tmp_path / "whole")


def test_a_kl_reference_with_another_digest_is_refused(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, "learner.kl=0.05", steps=4)
    flipped(folder / "weights" / "start" / "model.safetensors")
    with pytest.raises(RunFailed, match=r"KL reference in .*start is not what was recorded"):
        play(folder, "learner.kl=0.05", steps=5)


def test_the_newest_saves_and_the_best_are_kept(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", "run.save_every=1", "run.keep_saves=2", steps=6)
    with Ledger.read(tmp_path / "run") as ledger:
        steps = ledger.step_rows()
    rate = {
        row.step - 1: sum(t.passed for t in tallies) / sum(t.decided for t in tallies)
        for row in steps
        if (tallies := [t for place, t in row.tallies.items() if place.startswith("attempt/") and t.decided])
    }
    best = max((step for step in rate if step >= 0), key=lambda step: (rate[step], step))
    kept = {f"step_{step:06d}" for step in (best, 4, 5)}
    assert {folder.name for folder in (tmp_path / "run" / "weights").iterdir()} == kept


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
