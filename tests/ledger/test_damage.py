"""A flipped bit inside a value, which SQLite does not notice, ends in one sentence and in no traceback."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from selfplay.errors import RunFailed
from selfplay.ledger import Ledger, ParentRow, check, files, rows
from selfplay.ledger.damage import Damaged, decoding
from selfplay.ledger.rescue import rescue
from selfplay.types import Stop
from tests.ledger.flips import FAULT, JSON, QUESTIONS, flip, unguarded


@pytest.fixture
def full(folder: Path, make) -> Path:
    """A closed ledger with a row of every kind of JSON."""
    same = {"config_digest": "c", "step": -1, "policy_version": 0, "weights_digest": "w", "save_path": "weights/x"}
    parent = rows.parent(ParentRow(path="../old", changed={"run.seed": (0, 1)}, **same))
    folder.mkdir()
    config = {"run.steps": 2, "learner.estimator": "grpo"}
    files.create(folder, config_digest=make.config_digest, config=config, seed=7, game="echo", born=[parent])
    with Ledger.open(folder) as ledger:
        make.step(ledger, 0)
        proposal, broken = make.play(1), make.play(1, index=1, fault=FAULT, stop=Stop.FAULT)
        ledger.append(proposal, broken, make.verdict(proposal, "mint", valid=False, fault=FAULT))
        ledger.append_control(action="pause", arguments={"asked": "by a test"})
    return folder


def refusals(folder: Path) -> dict[str, RunFailed]:
    """Question -> what it was refused with."""
    refused = {}
    with Ledger.read(folder) as reader:
        for name, ask in QUESTIONS.items():
            try:
                ask(reader)
            except RunFailed as error:
                refused[name] = error
    return refused


def problems(folder: Path, name: str) -> tuple[str, ...]:
    (found,) = [checked.problems for checked in check.checks(folder) if checked.name == name]
    return found


def test_a_whole_ledger_answers_everything(full):
    assert refusals(full) == {}
    assert problems(full, "json") == ()


@pytest.mark.parametrize(("table", "column"), JSON)
def test_a_flipped_bit_in_json_is_told_by_whoever_meets_it(full, table, column):
    flip(full, table, column)
    refused = refusals(full)
    assert refused
    for error in refused.values():
        assert error.message.startswith(f"{full / 'ledger.db'} is damaged ("), error.message
        assert "selfplay check run --salvage run-2" in error.hint
    assert f"`{column}` of a row cannot be decoded" in " ".join(error.message for error in refused.values())
    assert problems(full, "json") == (f"1 rows of {table} have a {column} that is no JSON of its kind",)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ("UPDATE verdicts SET fault = replace(fault, 'culprit', 'culprix')", "json"),
        ("UPDATE steps SET tallies = replace(tallies, 'played', 'plaxed')", "json"),
        ("UPDATE parents SET changed = '{\"a\":1}'", "json"),
        ("UPDATE seeds SET payload = '[]'", "json"),
        ("UPDATE verdicts SET why = 'so ' || CAST(x'e1' AS TEXT)", "json"),
        ("UPDATE trajectories SET stop = 'dooe'", "turns"),
        ("UPDATE blobs SET data = x'0102030405'", "turns"),
        ("DELETE FROM blobs WHERE id = (SELECT logprobs FROM trajectories LIMIT 1)", "turns"),
    ],
)
def test_what_is_stored_in_another_form_is_told_too(full, damage, name):
    with unguarded(full) as connection:
        connection.execute(damage)
    refused = refusals(full)
    assert refused
    for error in refused.values():
        assert " is damaged (" in error.message
        assert len(error.message) < 300
    assert problems(full, name)


def test_a_question_that_fails_by_itself_is_no_damage(full):
    with Ledger.read(full) as reader, pytest.raises(KeyError):
        reader.ask(lambda ask: {}["nothing"])


def test_the_writer_names_the_damage_that_it_meets(full, make):
    flip(full, "steps", "totals")
    told = r"ledger\.db is damaged \(the totals of a step"
    with pytest.raises(RunFailed, match=told) as error, Ledger.open(full) as ledger:
        make.close(ledger, 1)
    assert "--salvage" in error.value.hint


def test_what_cannot_be_decoded_is_told_as_sqlite_tells_of_a_page():
    with pytest.raises(sqlite3.DatabaseError, match=r"a thing cannot be decoded: .*Expecting"), decoding("a thing"):
        json.loads("{")
    with pytest.raises(Damaged, match="an inner one"), decoding("a thing"):
        raise Damaged("an inner one")


def test_a_schema_that_is_no_text_is_a_sentence(full):
    path = full / "ledger.db"
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"CREATE TRIGGER seeds_no_update") + 7] |= 0x80
    path.write_bytes(whole)
    for opening in (Ledger.read, Ledger.open):
        with pytest.raises(RunFailed, match=r"ledger\.db is damaged"):
            opening(full)
    with pytest.raises(RunFailed, match="nothing can be saved of"):
        rescue(full, full.with_name("saved.db"))


def test_a_column_of_another_name_is_damage_and_no_traceback(full):
    path = full / "ledger.db"
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"    trajectory_ids INTEGER") + 4] ^= 1
    path.write_bytes(whole)
    assert any("is damaged: " in problem for checked in check.checks(full) for problem in checked.problems)
    with Ledger.read(full) as reader, pytest.raises(RunFailed):
        reader.updates()
    saved = rescue(full, full.with_name("saved.db"))
    assert (saved.steps, saved.left_out) == (0, "step 0: its update is missing")
