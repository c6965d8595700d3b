from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger
from tests.ledger.flips import flip
from tests.views.conftest import write_run

Typed = tuple[int, str, str]


def test_one_run(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("status", "toy")
    assert code == 0
    assert out.startswith("toy · echo · done · 2/2 steps")
    assert "selfplay inspect toy" in err
    assert "resume" not in err
    assert all(len(row) <= 80 for row in out.splitlines())


def test_one_run_for_programs(with_run: Path, answered: Callable[..., Any]) -> None:
    data = answered("status", "last")
    assert (data["name"], data["state"], data["closed"], data["steps"]) == ("toy", "done", 2, 2)


def test_all_runs_with_one_that_cannot_be_read(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    broken = with_run / "runs" / "broken"
    broken.mkdir()
    (broken / "ledger.db").write_bytes(b"nonsense" * 999)
    code, out, err = typed("status")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["toy", "done", "2/2"]
    assert "broken: " in err
    data = answered("status")
    assert [run["name"] for run in data["runs"]] == ["toy"]
    assert data["unreadable"][0]["name"] == "broken"


def test_a_flipped_bit_in_one_run_hides_no_other(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    broken = with_run / "runs" / "broken"
    shutil.copytree(with_run / "runs" / "toy", broken)
    flip(broken, "runs", "config")
    code, out, err = typed("status")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["toy", "done", "2/2"]
    assert f"broken: {broken}/ledger.db is damaged (`config` of a row cannot be decoded: " in err
    assert {row["name"]: row["state"] for row in answered("ls", "runs")["runs"]} == {
        "toy": "done",
        "broken": "unreadable",
    }
    code, _, err = typed("status", "broken")
    assert code == 1
    assert "selfplay check broken --salvage broken-2" in err
    assert "unexpected" not in err


def test_the_planned_steps_are_the_newest_launchs(with_run: Path, answered: Callable[..., Any]) -> None:
    config = with_run / "runs" / "toy" / "config.toml"
    config.write_text(config.read_text().replace("steps = 2 ", "steps = 9 ", 1))
    assert answered("status", "toy")["steps"] == 9
    config.unlink()
    assert answered("status", "toy")["steps"] == 2


def test_more_steps_than_a_launch_knew_of_are_owed(with_run: Path, answered: Callable[..., Any]) -> None:
    config = with_run / "runs" / "toy" / "config.toml"
    config.write_text(config.read_text().replace("steps = 2 ", "steps = 9 ", 1))
    assert answered("status", "toy")["state"] == "stopped"


def test_a_spent_budget_is_done_until_more_steps_are_set(here: Path, answered: Callable[..., Any]) -> None:
    for name, asked in (
        ("spent", []),
        ("set", [{"run.steps": "9"}]),
        ("refused", [{"run.steps": "9", "refused": "no"}]),
    ):
        folder = write_run(here / "runs" / name)
        assert answered("status", name)["state"] == "stopped"
        with Ledger.open(folder) as ledger:
            for arguments in asked:
                ledger.append_control(action="set", arguments=arguments)
            ledger.end_launch("done")
    assert {run["name"]: run["state"] for run in answered("status")["runs"]} == {
        "spent": "done",
        "set": "stopped",
        "refused": "done",
    }


@pytest.mark.parametrize("how", ["reverified", "not_reverified"])
def test_to_judge_again_leaves_a_run_as_it_was(
    with_warmed: Path, typed: Callable[..., Typed], answered: Callable[..., Any], how: str
) -> None:
    folder = with_warmed / "runs" / "warm"
    assert answered("status", "warm")["state"] == "done"
    for before, state in (("done", "done"), ("failed", "failed"), ("interrupted", "stopped")):
        for one in (before, how):
            with Ledger.open(folder) as ledger:
                ledger.end_launch(one)
        assert answered("status", "warm")["state"] == state
    with Ledger.open(folder):
        assert "selfplay watch warm" in typed("status", "warm")[2]
    assert answered("status", "warm")["state"] == "killed"


def test_a_run_that_is_found_by_its_path_is_named_by_it(
    with_study_run: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name behind `run --name` would start another run."""
    folder = with_study_run / "runs" / "studies" / "a study" / "warmup-0"
    with Ledger.open(folder) as ledger:
        ledger.end_launch("interrupted")
    (folder / "config.toml").write_text((folder / "config.toml").read_text().replace("steps = 2 ", "steps = 9 ", 1))
    _, out, err = typed("status", str(folder))
    assert out.startswith("warmup-0 · echo · stopped · 2/9 steps")
    path = "'runs/studies/a study/warmup-0'"
    assert err == f"\n  look      selfplay inspect {path}\n  report    selfplay report {path}\n"
    for words in (["inspect"], ["watch", "--once"], ["set", "run.steps=9"], ["stop"]):
        _, _, err = typed(words[0], str(folder), *words[1:])
        for line in [one for one in err.splitlines() if "selfplay " in one]:
            assert path in line
            assert "selfplay run" not in line
    for where, path in ((folder.parent, "./warmup-0"), (folder, ".")):
        monkeypatch.chdir(where)
        assert f"  look      selfplay inspect {path}\n" in typed("status", str(folder))[2]
        assert typed("inspect", path)[0] == 0


def test_an_alarm_of_level_error_is_exit_code_1(with_run: Path, typed: Callable[..., Typed]) -> None:
    with Ledger.open(with_run / "runs" / "toy") as ledger:
        ledger.append_alarm(level="error", code="x", message="weights drift").result()
        ledger.end_launch("done")
    code, out, _ = typed("status", "toy")
    assert code == 1
    assert "error: weights drift" in out


def test_no_runs(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("status")
    assert (code, out) == (0, "")
    assert "selfplay demo" in err
    code, out, err = typed("status", "nope", "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "not_found"
