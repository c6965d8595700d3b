"""A project folder with one finished toy run, and ways to type commands in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import main
from tests import forked
from tests.schemas import misfits_of_lines

Typed = tuple[int, str, str]
"""Exit code, stdout, stderr."""


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any]) -> Path:
    """A toy run of two steps, done; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("toy") / "runs" / "toy"
    play(folder, steps=2)
    return folder


@pytest.fixture(scope="session")
def replayed_run(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any]) -> Path:
    """A toy run of three steps whose curriculum plays some of its tasks again; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("replayed") / "runs" / "again"
    options = "curriculum.options={replay = 0.9, give_up = 0, only_better = false}"
    play(folder, "curriculum.choose=frontier", options, "curriculum.seeds=3", "play.proposals=16", steps=3)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder, which is the current one; caches lie in it too."""
    for name in ("SELFPLAY_PROJECT", "SELFPLAY_RUNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "selfplay.toml").write_text("")
    return tmp_path


@pytest.fixture
def with_run(here: Path, toy_run: Path) -> Path:
    """The same folder with the toy run in it."""
    shutil.copytree(toy_run, here / "runs" / "toy")
    return here


@pytest.fixture
def with_replays(here: Path, replayed_run: Path) -> Path:
    """The same folder with the run `again` in it, which has tasks and replays."""
    shutil.copytree(replayed_run, here / "runs" / "again")
    return here


@pytest.fixture(scope="session")
def warmed_run(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any]) -> Path:
    """A toy run of no step, a warm-up alone, done; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("warmed") / "runs" / "warm"
    play(folder, steps=0)
    return folder


@pytest.fixture
def with_warmed(here: Path, warmed_run: Path) -> Path:
    """The same folder with the run `warm` in it, which has no play."""
    shutil.copytree(warmed_run, here / "runs" / "warm")
    return here


@pytest.fixture
def with_study_run(here: Path, toy_run: Path) -> Path:
    """The same folder with a run that is found by its path alone, as a study's are."""
    shutil.copytree(toy_run, here / "runs" / "studies" / "a study" / "warmup-0")
    return here


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Typed]:
    """`typed("status", "toy")`: the command line, in this process. Every answer in JSON is held against its schema."""

    def run(*words: str) -> Typed:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        assert "--json" not in words or misfits_of_lines(out) == []
        return code, out, err

    return run


@pytest.fixture
def spawned() -> Callable[..., Typed]:
    """`spawned("run", "demo")`: the command line, in a process of its own. JSON is held against its schema here too."""
    code = "import sys; from selfplay.cli import main; sys.exit(main(sys.argv[1:]))"

    def run(*words: str, environ: Mapping[str, str] | None = None) -> Typed:
        done = forked.run(code, words, env={**os.environ, **(environ or {})})
        assert "--json" not in words or misfits_of_lines(done.stdout) == []
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def answered(typed: Callable[..., Typed]) -> Callable[..., Any]:
    """`answered("ls")`: the data of the answer to a command with --json."""

    def run(*words: str, code: int = 0) -> Any:
        exit_code, out, _ = typed(*words, "--json")
        message = json.loads(out)
        assert exit_code == code, message
        assert out.count("\n") == 1
        assert message["schema"].startswith("selfplay.")
        return message["data"]

    return run
