"""`selfplay study`: played once, measured once, opened once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.ledger import Ledger

Typed = tuple[int, str, str]

STUDY = """
[study]
about = "A study of a few steps."
preset = "demo"
seeds = [0]
budget = 300
minutes = 1
start = "warmup"
[endpoint]
measure = "pass@1"
attempts = 2
tasks = "held_out"
secondary = 3
compare = [["warmup", "full"]]
[dev]
seeds = [5]
[settings]
"play.proposals" = 4
"play.attempts" = 4
"play.min_viable" = 2
"curriculum.seeds" = 2
"policy.threads" = 1
[arms.warmup]
steps = 2
settings = { "learner.lr" = 1e-3 }
[arms.full]
"""


@pytest.fixture
def study(here: Path) -> Path:
    """The study's file."""
    (here / "curricula" / "studies").mkdir(parents=True)
    path = here / "curricula" / "studies" / "few.toml"
    path.write_text(STUDY)
    return path


def test_a_study_is_played_once(here: Path, study: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("study", str(study), "--plan")
    assert (code, "2 runs" in out, "nothing was played" in err) == (0, True, True)
    assert not (here / "runs").exists()
    code, out, err = typed("study", str(study), "--only", "warmup")
    assert code == 0, err
    assert "the test is opened when full-0 is played too" in err
    assert not (here / "curricula" / "results").exists(), "a part of a study measures nothing"
    _, out, _ = typed("study", str(study), "--plan")
    assert (out.count("0 measured\n"), out.count("0 measured, 1 to play\n"), "h to measure" in out) == (1, 1, False)
    code, out, err = typed("study", str(study))
    assert code == 0, err
    assert "| full less warmup | 1 |" in out
    folder = here / "curricula" / "results" / "few"
    assert sorted(path.name for path in folder.iterdir()) == [
        "full-0.json",
        "opened.json",
        "study.json",
        "warmup-0.json",
    ]
    row = json.loads((folder / "full-0.json").read_text())
    with Ledger.read(here / "runs" / "studies" / "few" / "full-0") as reader:
        tokens = [tally.tokens for step in reader.step_rows() for tally in step.tallies.values()]
        assert sum(tokens) == row["run"]["generated"]
        parent = reader.parent_row()
        assert parent is not None
        assert parent.path.endswith("warmup-0")
    spent = row["run"]["generated"] + row["run"]["trained"]
    assert spent >= 300, "it ends once its budget is spent"
    assert spent < 900, "and not much later"
    assert (here / "curricula" / "results" / "README.md").read_text().count("| full-0 |") == 1
    code, out, err = typed("study", str(study))
    assert (code, "0 measured" in err) == (0, True)
    _, out, _ = typed("study", str(study), "--plan")
    assert (out.count("1 measured\n"), "(0.0 h) of this machine still to play, 0.0 h to measure" in out) == (2, True)

    for old, new, error in (
        ("budget = 300", "budget = 30", "the study's budget is 30"),
        ('"play.attempts" = 4', '"play.attempts" = 5', "was started with other settings"),
        ("steps = 2", "steps = 3", "the run full-0 went on from other weights than `warmup-0` has now"),
    ):
        study.write_text(STUDY.replace(old, new))
        code, out, err = typed("study", str(study))
        assert (code, error in err) == (2, True), err
    study.write_text(STUDY)

    shutil.rmtree(here / "runs")
    (folder / "warmup-0.json").unlink()
    code, out, err = typed("study", str(study), "--only", "warmup")
    assert (code, "measured warmup-0" in err, "1 measured" in err) == (0, True, True), "all others have a result"
    assert not (here / "runs" / "studies" / "few" / "full-0").exists(), "what has a result is not played anew"

    study.write_text(STUDY.replace("seeds = [0]", "seeds = [0, 1]"))
    code, _, err = typed("study", str(study), "--only", "warmup", "--open-again")
    assert (code, "the test is opened when full-1 is played too" in err) == (0, True), "another form: not yet open"
    study.write_text(STUDY)
    (folder / "full-0.json").unlink()
    shutil.rmtree(here / "runs")
    (folder / "warmup-0.json").unlink()
    code, _, err = typed("study", str(study), "--only", "warmup")
    assert (code, "measured warmup-0" in err, "is played too" in err) == (0, True, False), "what is open is measured"

    study.write_text(STUDY.replace("budget = 300", "budget = 310"))
    code, out, err = typed("study", str(study))
    assert code == 2
    assert "the test of study `few` was opened before, and the study has changed since" in err


def test_a_second_run_is_held_against_the_first_and_against_a_result(
    here: Path, study: Path, typed: Callable[..., Typed], spawned: Callable[..., Typed]
) -> None:
    code, _, err = typed("study", str(study), "--again")
    assert (code, "warmup-0 was not played a first time, and has no result" in err) == (2, True), err
    assert not (here / "runs").exists()
    code, _, err = typed("study", str(study))
    assert code == 0, err
    code, out, err = typed("study", str(study), "--again")
    assert (code, [line.split(" ledger ")[0] for line in out.splitlines()]) == (
        0,
        ["warmup-0: the same", "full-0: the same"],
    ), err
    assert {path.name for path in (here / "runs" / "studies" / "few").iterdir()} == {
        "warmup-0",
        "full-0",
        "warmup-0-again",
        "full-0-again",
    }

    shutil.rmtree(here / "runs")
    only = ("study", str(study), "--only", "full", "--again")
    code, out, err = spawned(*only, "--json")
    assert code == 0, err
    [row] = json.loads(out)["data"]["again"]
    assert (row["run"], row["same"], row["first"]) == ("full-0", True, row["second"]), "a result will do"
    assert {path.name for path in (here / "runs" / "studies" / "few").iterdir()} == {"warmup-0-again", "full-0-again"}
    result = here / "curricula" / "results" / "few" / "full-0.json"
    told = json.loads(result.read_text())
    told["run"] |= {"ledger": "0" * 32, "fingerprint": "another processor"}
    result.write_text(json.dumps(told))
    code, out, err = typed(*only)
    assert code == 1, err
    assert out.startswith("full-0: another ledger, ")
    assert "the weights are the same; equal bits are promised for one fingerprint, and these are" in out

    result.unlink()
    code, _, err = typed("study", str(study), "--only", "full")
    assert code == 0, err
    with sqlite3.connect(here / "runs" / "studies" / "few" / "full-0" / "ledger.db") as connection:
        connection.execute("DROP TRIGGER verdicts_no_update")
        connection.execute("UPDATE verdicts SET why = 'another'")
    code, out, err = typed(*only)
    assert (code, "what differs: verdicts; the weights are the same\n" in out) == (1, True), err


def test_tuning_has_seeds_of_its_own_and_opens_nothing(here: Path, study: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("study", str(study), "--dev", "--only", "warmup")
    assert code == 0, err
    folder = here / "curricula" / "results" / "few"
    assert [path.name for path in (folder / "dev").iterdir()] == ["warmup-5.json"]
    assert not (folder / "opened.json").exists()
    assert "### Tuning" in (here / "curricula" / "results" / "README.md").read_text()


def test_a_page_of_a_studys_results_plays_nothing(here: Path, typed: Callable[..., Typed]) -> None:
    """Those beside the study's file, which may lie in another project."""
    study = here / "other" / "studies" / "few.toml"
    study.parent.mkdir(parents=True)
    study.write_text(STUDY)
    code, out, err = typed("study", str(study), "--page")
    page = here / "other" / "results" / "README.md"
    assert (code, out, err) == (0, "", f"made {page}\n")
    assert "Nothing was measured yet." in page.read_text()
    assert not (here / "runs").exists()
    assert not (here / "curricula").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["none.toml"], "no study none.toml"),
        ([], "which study?"),
        (["FILE", "--only", "nobody"], "study `few` has no arm `nobody`"),
        (["FILE", "--seed", "7"], "7 is no seed of study `few`"),
        (["FILE", "--again", "--plan"], "--again plays and compares"),
        (["FILE", "--make-tasks"], "does not say of what tasks are made"),
    ],
)
def test_bad_input(study: Path, typed: Callable[..., Typed], words: list[str], error: str) -> None:
    code, out, err = typed("study", *[str(study) if word == "FILE" else word for word in words])
    assert (code, out) == (2, "")
    assert error in err


def test_a_model_that_learnt_nothing_is_asked_the_held_out_tasks_of_some_run(
    study: Path, typed: Callable[..., Typed]
) -> None:
    study.write_text(f'{STUDY}[arms.base]\nstart = ""\nsteps = 0\n')
    code, _, err = typed("study", str(study), "--dev", "--only", "base")
    assert (code, "no run of study `few` with seed 5 is here" in err) == (3, True), err


def test_a_plan_for_programs(study: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("study", str(study), "--plan", "--json")
    assert code == 0, err
    assert out.startswith('{"schema": "selfplay.study/1"')
