"""Runs to export, ways to export them, and which libraries are here to open what came out."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.exports import place, seam
from selfplay.ledger import Ledger
from selfplay.project import Project

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any]) -> Path:
    """Two steps of the toy game, with an evaluation on held-out words after each; not to be changed."""
    folder = tmp_path_factory.mktemp("evaluated") / "toy"
    play(folder, "eval.every=1", "eval.tasks=2", "eval.attempts=2", steps=2)
    return folder


@pytest.fixture
def exported(tmp_path: Path, project: Project) -> Callable[..., tuple[seam.Made, Path]]:
    """`exported(run, "atif", step=1)`: what was made, and where it lies."""

    def export(run: Path, form: str, **asked: Any) -> tuple[seam.Made, Path]:
        to, chosen = tmp_path / form, seam.find(form)
        with Ledger.read(run) as reader, place.opened(to, chosen.shape) as out:
            made = chosen.write(seam.Asked(reader=reader, project=project, **asked), out)
        return made, to

    return export


def needs(module: str, variable: str = "SELFPLAY_REQUIRE_EXPORTS") -> None:
    """Skip where a library is missing, or fail where the environment says that it must be here."""
    if importlib.util.find_spec(module) is None:
        sentence = f"{module} is not installed: .ci/exports makes an environment with it"
        pytest.fail(sentence) if os.environ.get(variable) == "1" else pytest.skip(sentence)


@pytest.fixture
def opened() -> Callable[..., Any]:
    """`opened("hf", folder)`: what the format's own library reads there, in a process of its own."""

    def read(form: str, to: Path, *, python: str = sys.executable) -> Any:
        command = [python, str(HERE / "opened.py"), form, str(to)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read
