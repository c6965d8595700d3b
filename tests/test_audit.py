"""What `selfplay check` finds: everything that is not as it was recorded, by name."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from selfplay import audit as module
from selfplay import saves
from selfplay.audit import audit
from selfplay.build import Outcome
from selfplay.learner.stored import Digests, digests
from selfplay.ledger import Ledger

Play = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, six_steps: Path) -> Path:
    """A copy of the run of six steps."""
    return Path(shutil.copytree(six_steps, tmp_path / "toy"))


@contextmanager
def unguarded(folder: Path) -> Iterator[sqlite3.Connection]:
    """The ledger without its triggers, to do damage."""
    with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield connection


def found(folder: Path) -> dict[str, str]:
    """Check -> its first problem."""
    return {checked.name: checked.problems[0] for checked in audit(folder) if checked.num_problems}


def notes(folder: Path) -> str:
    return "\n".join(note for checked in audit(folder) for note in checked.notes)


def test_a_whole_run_has_nothing_wrong(folder: Path) -> None:
    checks = list(audit(folder))
    assert [checked.problems for checked in checks if checked.problems] == []
    counts = {checked.name: checked.count for checked in checks}
    with Ledger.read(folder) as ledger:
        assert counts["steps"] == 6
        assert counts["updates"] == len(ledger.updates()) == 6
        assert any(update.skipped is None for update in ledger.updates())
    assert counts["weights"] == 3
    assert counts["turns"] > 50
    assert counts["config"] > 30


@pytest.mark.parametrize(
    ("damage", "check", "problem"),
    [
        ("UPDATE trajectories SET position = 99 WHERE rowid = 3", "ids", "has another place's id"),
        ("UPDATE tasks SET key = 'x' WHERE rowid = 1", "ids", "has another task's id"),
        ("UPDATE groups SET subject_id = 'x' WHERE rowid = 1", "ids", "has another group's id"),
        ("DELETE FROM turns WHERE position = 1 AND rowid_of = 1", "turns", "1 turns are there, and it has 2"),
        ("UPDATE turns SET num_tokens = num_tokens + 1 WHERE position = 0", "turns", "token ids are there"),
        ("UPDATE turns SET num_chars = num_chars + 1 WHERE position = 0", "turns", "its text is longer or shorter"),
        ("UPDATE turns SET num_logprobs = 0", "turns", "log-probabilities are more or fewer than its turns have"),
        ("UPDATE blobs SET codec = 'zlib' WHERE dtype = 'int32' AND codec = 'raw'", "turns", "blobs are damaged"),
        ("DELETE FROM choices WHERE step = 1 AND position = 0", "choices", "step 1: its choices have a gap"),
        ("UPDATE seeds SET split = 'held_out'", "choices", "was proposed on"),
        ("DELETE FROM verdicts WHERE stage = 'judge'", "verdicts", "has no verdict"),
        ("UPDATE verdicts SET stage = 'judge' WHERE stage = 'mint'", "verdicts", "was played for stage propose"),
        ("UPDATE verdicts SET fault = '{}' WHERE reward IS NOT NULL", "verdicts", "was paid for a fault"),
        ("DELETE FROM group_members WHERE position = 1", "groups", "it has not the"),
        ("UPDATE group_members SET reward = reward + 1", "groups", "a reward is not what was decided"),
        ("UPDATE groups SET informative = 1 - informative", "groups", "its rewards say otherwise"),
        ("UPDATE updates SET policy_version = policy_version + 1 WHERE step = 3", "updates", "its version is not"),
        ("UPDATE updates SET weights_digest = 'x' WHERE step = 5", "updates", "skipped, and the weights changed"),
        ("DELETE FROM updates WHERE step = 2", "updates", "update 2 is missing before it"),
        ("UPDATE group_members SET advantage = 2 * advantage", "updates", "its advantages are not those of"),
        ("UPDATE steps SET tallies = '{}' WHERE step = 4", "steps", "step 4: its rows do not give its tallies"),
        ("UPDATE steps SET totals = '{}' WHERE step = 4", "steps", "step 4: its totals are not the tallies' sum"),
        ("DELETE FROM steps WHERE step = 3", "steps", "step 4 is closed, and step 3 is missing"),
        ("UPDATE saves SET weights_digest = 'x'", "saves", "its digest is not that of the update before it"),
        ("UPDATE saves SET state_digest = 'x'", "weights", "its moments and counters are not those"),
        ("UPDATE runs SET config_digest = 'x'", "config", "do not have the digest"),
        ("UPDATE steps SET counts = 'x' WHERE step = 1", "json", "1 rows of steps have a counts that is no JSON"),
        ("DELETE FROM seeds", "references", "refers to a missing row of seeds"),
    ],
)
def test_every_damage_is_named(folder: Path, damage: str, check: str, problem: str) -> None:
    with unguarded(folder) as connection:
        first = connection.execute("SELECT id FROM trajectories ORDER BY rowid LIMIT 1").fetchone()[0]
        connection.execute(damage.replace("rowid_of = 1", f"trajectory_id = '{first}'"))
    assert problem in found(folder)[check]


def test_a_held_out_task_of_a_train_seed_is_a_dev_task_and_not_the_other_way_round(folder: Path) -> None:
    with unguarded(folder) as connection:
        (task, seed) = connection.execute("SELECT id, seed_id FROM tasks LIMIT 1").fetchone()
        connection.execute("UPDATE tasks SET split = 'held_out' WHERE id = ?", (task,))
    assert f"was played to learn from, on the held-out task {task}" in found(folder)["choices"]
    with unguarded(folder) as connection:
        connection.execute("UPDATE trajectories SET stage = 'evaluate' WHERE subject_id = ?", (task,))
    assert "choices" not in found(folder)
    with unguarded(folder) as connection:
        connection.execute("UPDATE tasks SET split = 'train' WHERE id = ?", (task,))
        connection.execute("DELETE FROM choices")
        connection.execute("UPDATE seeds SET split = 'held_out' WHERE id = ?", (seed,))
    assert found(folder)["choices"].endswith("comes of a held-out seed, and is not held out")


def test_a_count_that_an_older_version_did_not_make_is_not_missing(folder: Path) -> None:
    with unguarded(folder) as connection:
        for step, tallies in connection.execute("SELECT step, tallies FROM steps").fetchall():
            older = {place: {k: v for k, v in t.items() if k != "left_out"} for place, t in json.loads(tallies).items()}
            connection.execute("UPDATE steps SET tallies = ? WHERE step = ?", (json.dumps(older), step))
    assert "steps" not in found(folder)


def test_other_members_than_the_trained_ones_are_named(folder: Path) -> None:
    with unguarded(folder) as connection:
        blob, data = connection.execute(
            "SELECT b.id, b.data FROM updates u JOIN blobs b ON b.id = u.trajectory_ids WHERE u.skipped IS NULL AND "
            "b.codec = 'raw' UNION SELECT b.id, b.data FROM updates u JOIN blobs b ON b.id = u.trajectory_ids "
            "WHERE u.skipped IS NULL AND b.codec = 'zlib'"
        ).fetchone()
        ids = json.loads(data if data[:1] == b"[" else zlib.decompress(data))
        changed = json.dumps(["f" * 32, *ids[1:]]).encode()
        connection.execute("UPDATE blobs SET data = ?, codec = 'raw' WHERE id = ?", (changed, blob))
    assert f"trajectory {'f' * 32} is in no group of its step" in found(folder)["updates"]


def test_a_damaged_save_is_named_and_a_pruned_one_is_not(folder: Path) -> None:
    weights = folder / "weights"
    model = weights / "step_000003" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])
    shutil.rmtree(weights / "step_000001")
    assert "step_000003: the save in" in found(folder)["weights"]
    assert "weights/step_000001 (1 in all)" in notes(folder)
    shutil.rmtree(weights)
    assert found(folder) == {}
    assert "no save is on disk: a resume applies all 6 updates again" in notes(folder)


def test_a_save_that_is_pruned_while_it_is_read_is_gone_and_not_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(save: Path) -> Digests:
        if save.name == "step_000001":
            shutil.rmtree(folder / "weights" / "step_000003")
        return digests(save)

    monkeypatch.setattr(module, "digests", read)
    (checked,) = [checked for checked in audit(folder) if checked.name == "weights"]
    assert (checked.problems, checked.count) == ((), 2)
    assert "weights/step_000003 (1 in all)" in "\n".join(checked.notes)


def test_a_save_that_is_written_while_its_rows_are_read_is_no_stranger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(run_folder: Path) -> list[Path]:
        shutil.copytree(folder / "weights" / "step_000005", folder / "weights" / "step_000007")
        return of_steps(run_folder)

    of_steps = saves.of_steps
    monkeypatch.setattr(saves, "of_steps", looked)
    assert found(folder) == {}


def test_what_killed_processes_leave_is_named(folder: Path) -> None:
    weights = folder / "weights"
    (weights / ".step_000009.77.part").mkdir()
    (folder / "ledger.db.new").write_bytes(b"half")
    shutil.copytree(weights / "step_000003", weights / "step_000004")
    shutil.copytree(weights / "step_000003", weights / "step_000009.bak")
    (weights / "step_000009.tar.gz").write_bytes(b"packed")
    assert found(folder) == {}
    told = notes(folder)
    assert "left by a process that was killed, or in use by one that runs: ledger.db.new, weights/.step_000009" in told
    assert "weights/step_000004 has no row" in told
    for name in ("step_000009.bak", "step_000009.tar.gz"):
        assert f"weights/{name} is no save of this run, and is left alone" in told


def test_rows_that_were_lost_show_in_the_saves(folder: Path) -> None:
    shutil.copytree(folder / "weights" / "step_000005", folder / "weights" / "step_000007")
    assert "weights/step_000007 was saved after the last step that the ledger has, 5" in found(folder)["weights"]


def test_a_run_that_is_played_may_be_checked(folder: Path, play: Play) -> None:
    checked: list[dict[str, str]] = []

    def observe(event: object) -> None:
        if getattr(event, "kind", "") == "tick" and len(checked) < 3:
            checked.append(found(folder))

    play(folder, "run.keep_saves=9", steps=7, observe=observe)
    assert checked == [{}, {}, {}]
