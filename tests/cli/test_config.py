from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Typed = tuple[int, str, str]


def test_values_and_where_they_came_from(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("config", "demo", "-s", "run.steps=3")
    rows = {row.split()[0]: row.split()[1:] for row in out.splitlines()}
    assert code == 0
    assert rows["run.steps"] == ["3", "-s"]
    assert rows["run.game"] == ["echo", "curricula/demo.toml:4"]
    assert "learner.kl" not in rows
    assert "selfplay config --all" in err


def test_all_keys_with_their_meaning(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, _ = typed("config", "--all")
    assert code == 0
    assert "learner.kl" in out
    assert "may change between launches" in " ".join(out.split())


def test_for_programs_and_of_a_run(with_run: Path, answered: Callable[..., Any]) -> None:
    data = answered("config", "toy")
    settings = {row["key"]: row for row in data["settings"]}
    assert settings["run.steps"]["value"] == 2
    assert settings["run.steps"]["affects_results"] is False
    assert len(data["digest"]) == 32


def test_a_run_is_meant_as_elsewhere(with_study_run: Path, answered: Callable[..., Any], toy_run: Path) -> None:
    shutil.copytree(toy_run, with_study_run / "runs" / "toy")
    digest = answered("config", "toy")["digest"]
    for text in ("last", "to", "runs/toy", "runs/studies/a study/warmup-0"):
        assert answered("config", text)["digest"] == digest
    (with_study_run / "runs" / "toy" / "ledger.db").unlink()
    assert answered("config", "toy")["digest"] == digest


def test_unknown(here: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("config", "quikstart")
    assert code == 2
    assert "did you mean `quickstart`?" in err
