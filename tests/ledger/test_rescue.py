"""What is saved of a ledger in which values are damaged: what `selfplay check` accepts, and nothing else."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from selfplay.errors import RunFailed
from selfplay.ledger import Ledger, ParentRow, check, files, rows
from selfplay.ledger.rescue import Rescued, rescue
from tests.ledger.flips import JSON, QUESTIONS, fill, flip, unguarded


@pytest.fixture(scope="module")
def played(six_steps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps of the toy game, with a row of every kind of JSON; not to be changed."""
    folder = tmp_path_factory.mktemp("filled") / "toy"
    folder.mkdir()
    shutil.copy(six_steps / "ledger.db", folder / "ledger.db")
    fill(folder)
    assert problems(folder) == {}
    return folder


@pytest.fixture
def broken(played: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(played, tmp_path / "toy"))


def problems(folder: Path) -> dict[str, tuple[str, ...]]:
    return {checked.name: checked.problems for checked in check.checks(folder) if checked.problems}


def saved(broken: Path) -> Rescued:
    """What was saved of it; it is whole, and answers everything."""
    target = broken.with_name("saved")
    target.mkdir()
    found = rescue(broken, target / "ledger.db")
    assert problems(target) == {}
    with Ledger.read(target) as reader:
        assert reader.last_closed_step() == found.steps - 1
        for ask in QUESTIONS.values():
            ask(reader)
    return found


@pytest.mark.parametrize(("table", "column"), [place for place in JSON if place != ("runs", "config")])
def test_a_row_whose_json_is_damaged_is_left_out_with_what_follows_from_it(broken, table, column):
    flip(broken, table, column)
    assert problems(broken)
    found = saved(broken)
    assert found.left_out
    if found.steps == 6:
        assert found.left_out.startswith(f"rows that cannot be read in {table}")
    # note: no step needs what was evaluated, nor these; a seed is needed from when it is chosen.
    if table != "seeds":
        assert (found.steps == 6) == (column == "fault" or table in ("tool_calls", "control", "parents"))


def test_a_run_whose_settings_are_damaged_is_hopeless(broken):
    flip(broken, "runs", "config")
    with pytest.raises(RunFailed, match=r"nothing can be saved of .*: its head is damaged \(`config` of a row"):
        saved(broken)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tasks SET key = 'x' WHERE rowid = 1",
        "UPDATE trajectories SET stop = 'dooe' WHERE step = 4 AND position = 0",
        "UPDATE trajectories SET stop = 'dooe' WHERE stage = 'evaluate'",
        "UPDATE verdicts SET why = 'so ' || CAST(x'e1' AS TEXT) WHERE rowid = 9",
        "UPDATE blobs SET data = x'00' WHERE id IN (SELECT token_ids FROM trajectories WHERE stage = 'evaluate')",
        "DELETE FROM blobs WHERE id IN (SELECT logprobs FROM trajectories WHERE step = 4)",
        "DELETE FROM seeds WHERE id IN (SELECT subject_id FROM choices WHERE step = 3)",
        "UPDATE choices SET subject_id = 'x' WHERE step = 3",
        "UPDATE steps SET tallies = replace(tallies, 'played', 'plaxed') WHERE step = 2",
    ],
)
def test_what_is_saved_is_whole_whatever_was_damaged(broken, damage):
    with unguarded(broken) as connection:
        assert connection.execute(damage).rowcount
    assert problems(broken)
    assert saved(broken).left_out


def test_a_run_whose_ids_are_of_other_settings_is_hopeless(broken):
    with unguarded(broken) as connection:
        connection.execute("UPDATE runs SET config_digest = 'x'")
    with pytest.raises(RunFailed, match=r"its head is damaged \(the digest of its settings is not the one"):
        saved(broken)


def test_a_fork_that_does_not_know_of_what_is_hopeless(folder, make):
    same = {"config_digest": "c", "step": 3, "policy_version": 2, "weights_digest": "w", "save_path": "weights/x"}
    parent = rows.parent(ParentRow(path="../old", changed={"run.seed": (0, 1)}, **same))
    folder.mkdir()
    files.create(folder, config_digest=make.config_digest, config={"run.steps": 2}, seed=7, game="echo", born=[parent])
    flip(folder, "parents", "changed")
    with pytest.raises(RunFailed, match="whether it was forked, and from what, cannot be read"):
        saved(folder)


def test_what_is_not_kept_for_its_ids_is_named(broken):
    with unguarded(broken) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("UPDATE trajectories SET position = 99 WHERE stage = 'evaluate' AND fault IS NOT NULL")
    found = saved(broken)
    assert (found.steps, found.left_out) == (6, "rows that cannot be read in trajectories")
