from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli.report import report_of, settings
from selfplay.ledger import Ledger
from selfplay.project import find_project
from tests.bench import ledger_data as data

Typed = tuple[int, str, str]


def test_the_file(with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, err = typed("report", "again")
    file = with_replays / "runs" / "again" / "report.html"
    assert code == 0, err
    assert out == f"{file}\n"
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "frontier of again" in text
    assert "selfplay run runs/again/config.toml --name again-again" in text
    found = answered("report", "again", "--to", "x.html")
    assert found["num_bytes"] == (with_replays / "x.html").stat().st_size
    assert found["pairs"]
    assert sorted(path.name for path in with_replays.iterdir()) == ["runs", "selfplay.toml", "x.html"]


def test_its_commands_work(with_run: Path, typed: Callable[..., Typed]) -> None:
    typed("report", "toy")
    text = (with_run / "runs" / "toy" / "report.html").read_text(encoding="utf-8")
    for words in (
        ("run", "runs/toy/config.toml", "--name", "toy-again", "--plan"),
        ("check", "toy"),
        ("replay", "toy", "1"),
        ("inspect", "toy"),
    ):
        assert " ".join(("selfplay", *(word for word in words if word != "--plan"))) in text
        code, _, err = typed(*words)
        assert code == 0, err


def test_a_fork_is_played_again_as_a_fork_and_a_path_is_quoted(
    with_study_run: Path, typed: Callable[..., Typed]
) -> None:
    parent = "runs/studies/a study/warmup-0"
    code, _, err = typed("run", "--fork", parent, "--name", "child", "-s", "learner.lr=0.002", "--steps", "1")
    assert code == 0, err
    assert [lines_of(typed, "child", with_study_run / "runs" / "child")[number] for number in (1, 2)] == [
        f"selfplay run runs/child/config.toml --name child-again --fork '{parent}'@1",
        "selfplay replay child 0",
    ]
    with Ledger.open(with_study_run / parent) as ledger:
        ledger.end_launch("interrupted")
    config = with_study_run / parent / "config.toml"
    config.write_text(config.read_text().replace("steps = 2 ", "steps = 9 ", 1))
    lines = lines_of(typed, parent, with_study_run / parent)
    assert lines[1] == f"selfplay run '{parent}/config.toml' --name warmup-0-again"
    assert lines[2:] == [f"selfplay {command} '{parent}'{rest}" for command, rest in REST]


REST = (("replay", " 1"), ("check", ""), ("inspect", ""))


def lines_of(typed: Callable[..., Typed], run: str, folder: Path) -> list[str]:
    """The commands that the run's report offers."""
    assert typed("report", run)[0] == 0
    with Ledger.read(folder) as reader:
        report = report_of(reader, project=find_project(explicit=None))
    text = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert all(command in text for _, command in report.commands)
    return [command for _, command in report.commands]


def test_settings_have_their_origin(with_run: Path) -> None:
    with Ledger.read(with_run / "runs" / "toy") as reader:
        found = {one.key: one for one in settings(reader)}
        assert (found["run.steps"].value, found["run.steps"].origin) == ("2", "-s")
        assert found["run.seed"].origin == "built-in"
        assert set(found) == set(reader.run_row().config)
        (with_run / "runs" / "toy" / "config.toml").unlink()
        assert {one.key for one in settings(reader)} == set(reader.run_row().config)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["toi"], 2, "no run `toi` in"),
        (["toy", "--to", "no/where.html"], 3, "cannot write no/where.html: No such file or directory"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], code: int, message: str) -> None:
    found, out, err = typed("report", *words)
    assert (found, out) == (code, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err


def test_ten_thousand_trajectories_stay_small(here: Path, answered: Callable[..., Any]) -> None:
    folder = here / "runs" / "long"
    with Ledger.create(folder, config_digest=data.CONFIG, config={}, seed=0, game="code") as ledger:
        ledger.append(*(data.seed_of(number) for number in range(data.SEEDS))).result()
        for step in range(8):
            records, groups, update = data.step_records(step)
            ledger.append(*records)
            ledger.close_step(step=step, groups=groups, update=update, stage_seconds={"sampling": 1.0}, counts={})
    data.multiply(folder, 10_000)
    found = answered("report", "long")
    assert found["steps"] * data.PER_STEP >= 10_000
    assert found["num_bytes"] < 5_000_000
    assert found["sampled"]["of"] == found["steps"] * data.SEEDS * data.PROPOSALS
