"""What was exported, opened by the library that it is for; skipped where that is missing. All are in `.ci/exports`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from selfplay.exports import seam, tables
from selfplay.exports.curves import Moment, moments
from selfplay.exports.plays import Play, plays
from selfplay.ledger import Ledger
from selfplay.project import Project
from tests.exports.conftest import needs

Opened = Callable[..., Any]
Typed = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Typed:
    """`written(run, "hf", "--held-out")`: exported by the command, in a process of its own, as libraries like it."""

    def export(run: Path, form: str, *words: str) -> Path:
        to = tmp_path / form
        command = [sys.executable, "-m", "selfplay", "export", str(run), "--format", form, "--to", str(to), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return to

    return export


@pytest.fixture
def played(evaluated: Path, project: Project) -> list[Play]:
    with Ledger.read(evaluated) as reader:
        return list(plays(seam.Asked(reader=reader, project=project, held_out=True)))


@pytest.fixture
def curve(evaluated: Path, project: Project) -> list[Moment]:
    with Ledger.read(evaluated) as reader:
        return list(moments(seam.Asked(reader=reader, project=project)))


def test_parquet(evaluated: Path, written: Typed, opened: Opened, played: list[Play], curve: list[Moment]) -> None:
    needs("pyarrow")
    told = opened("parquet", written(evaluated, "parquet", "--held-out"))
    assert list(told["columns"]["plays"]) == list(tables.PLAYS)
    assert list(told["columns"]["tasks"]) == list(tables.TASKS)
    assert told["rows"]["plays"] == len(played)
    rows = {row["id"]: row for row in told["plays"]}
    for play in played:
        row = rows[play.trajectory.id]
        assert tuple(row["token_ids"]) == play.trajectory.token_ids
        assert (row["reward"], row["advantage"], row["split"]) == (play.reward, play.advantage, play.split)
        assert len(row["logprobs"]) == sum(row["sampled"]) == play.trajectory.num_sampled
    found = {(row["step"], row["name"]): row["value"] for row in told["metrics"]}
    assert found == {(one.step, name): value for one in curve for name, value in one.values.items()}


def test_hugging_face(evaluated: Path, written: Typed, opened: Opened, played: list[Play]) -> None:
    needs("datasets")
    told = opened("hf", written(evaluated, "hf", "--held-out"))
    by_split = {
        split: {play.trajectory.id for play in played if play.split == split} for split in ("train", "held_out")
    }
    assert set(told["tables"]["plays"]["train"]["ids"]) == by_split["train"]
    assert set(told["tables"]["plays"]["test"]["ids"]) == by_split["held_out"]
    assert told["license"] == "other"
    assert "selfplay" in told["tags"]


def test_hugging_face_leaves_held_out_out(evaluated: Path, written: Typed) -> None:
    needs("pyarrow")
    to = written(evaluated, "hf")
    assert all(file.name.endswith("-train.parquet") for file in (to / "data").iterdir())


def test_tensorboard(evaluated: Path, written: Typed, opened: Opened, curve: list[Moment]) -> None:
    needs("tensorboard")
    told = opened("tensorboard", written(evaluated, "tensorboard"))
    wanted = {
        (name.replace("@", "_at_"), one.step): (one.at, value) for one in curve for name, value in one.values.items()
    }
    found = {(name, step): (at, value) for name, points in told.items() for step, at, value in points}
    assert found.keys() == wanted.keys()
    for key, (at, value) in wanted.items():
        assert found[key][0] == pytest.approx(at, abs=1e-3)
        assert found[key][1] == pytest.approx(value, rel=1e-6)


def test_trackio(evaluated: Path, written: Typed, opened: Opened, curve: list[Moment]) -> None:
    needs("trackio")
    told = opened("trackio", written(evaluated, "trackio"))
    assert told["name"] == "toy"
    assert told["config"]["run.game"] == "echo"
    assert [one["step"] for one in told["logs"]] == [one.step for one in curve]
    for one, moment in zip(told["logs"], curve, strict=True):
        assert datetime.fromisoformat(one["timestamp"]).timestamp() == pytest.approx(moment.at, abs=1e-3)
        assert {name: one[name] for name in moment.values} == pytest.approx(dict(moment.values))


def test_wandb(evaluated: Path, written: Typed, opened: Opened, curve: list[Moment]) -> None:
    needs("wandb")
    told = opened("wandb", written(evaluated, "wandb"))
    assert told["name"] == "toy"
    assert [one["_step"] for one in told["history"]] == [one.step for one in curve]
    for one, moment in zip(told["history"], curve, strict=True):
        assert one["_timestamp"] == pytest.approx(moment.at, abs=1e-3)
        assert {name: one[name] for name in moment.values} == pytest.approx(dict(moment.values))


def test_inspect(evaluated: Path, written: Typed, opened: Opened, played: list[Play]) -> None:
    needs("inspect_ai")
    told = opened("inspect", written(evaluated, "inspect", "--held-out"))
    samples = {sample["id"]: sample for log in told["logs"] for sample in log["samples"]}
    assert told["frame"] == len(samples) == len(played)
    assert {log["status"] for log in told["logs"]} == {"success"}
    for play in played:
        sample = samples[play.trajectory.id]
        assert sample["reply"] == play.trajectory.reply
        assert sample["score"] == (None if play.succeeded is None else "C" if play.succeeded else "I")
        assert play.succeeded is None or sample["why"] == play.why


def test_atif(evaluated: Path, written: Typed, opened: Opened, played: list[Play]) -> None:
    needs("atif")
    told = opened("atif", written(evaluated, "atif", "--held-out"))
    assert {one["id"]: one["reward"] for one in told} == {play.trajectory.id: play.reward for play in played}


@pytest.mark.parametrize(
    ("form", "module"),
    [
        ("parquet", "pyarrow"),
        ("hf", "pyarrow"),
        ("inspect", "inspect_ai"),
        ("tensorboard", "tensorboard"),
        ("trackio", "trackio"),
        ("wandb", "wandb"),
    ],
)
def test_without_the_library(
    evaluated: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, form: str, module: str
) -> None:
    from selfplay.cli import main

    monkeypatch.setitem(sys.modules, module, None)
    to = tmp_path / "to"
    assert main(["export", str(evaluated), "--format", form, "--to", str(to)]) == 3
    said = capsys.readouterr().err
    assert f"pip install 'selfplay-curriculum[{form}]'" in said
    assert not to.exists()


def test_harbor_reads_trajectories(evaluated: Path, written: Typed, opened: Opened, played: list[Play]) -> None:
    python = os.environ.get("SELFPLAY_HARBOR_PYTHON")
    if not python:
        pytest.skip("SELFPLAY_HARBOR_PYTHON names no interpreter with harbor: .ci/exports makes one")
    told = opened("atif", written(evaluated, "atif", "--held-out"), python=python)
    assert len(told) == len(played)
