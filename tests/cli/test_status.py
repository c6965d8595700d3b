from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfplay.ledger import Ledger
from tests.ledger.flips import flip

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
