"""What several tests share: toy runs, built from the shipped `demo` preset in a temporary folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome, execute
from selfplay.config import Config, load
from selfplay.events import Event, Interrupt, ignore
from selfplay.project import Project, find_project
from tests import scripted
from tests.backends import needed

SMALL = (
    *("play.proposals=4", "play.attempts=4", "play.min_viable=2"),
    *("curriculum.seeds=2", "run.save_every=2", "learner.lr=1e-3"),
)
"""A step of the toy game in a tenth of a second."""


@pytest.fixture(scope="session")
def project() -> Project:
    """This checkout."""
    return find_project(explicit=Path(__file__).parent.parent)


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    """The overrides that make the demo preset small."""
    return (*SMALL, "policy.threads=1")


@pytest.fixture(scope="session")
def toy_config(project: Project, small: tuple[str, ...]) -> Callable[..., Config]:
    """`toy_config("learner.lr=0.1")`: the demo preset, made small, with overrides."""
    return lambda *sets: load("demo", project=project, sets=[*small, *sets])


@pytest.fixture(scope="session")
def play(project: Project, toy_config: Callable[..., Config]) -> Callable[..., Outcome]:
    """`play(folder, steps=3)`: play the toy game there, or go on with it."""

    def run(
        folder: Path,
        *sets: str,
        steps: int = 3,
        observe: Callable[[Event], None] = ignore,
        interrupt: Interrupt | None = None,
    ) -> Outcome:
        config = toy_config(f"run.steps={steps}", *sets)
        return execute(config, project=project, folder=folder, observe=observe, interrupt=interrupt or Interrupt())

    return run


@pytest.fixture(scope="session")
def played_code(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Path:
    """A folder with a cache and, in runs/, a scripted run of the code game; to be copied (`code_run`)."""
    needed("bubblewrap")
    folder = tmp_path_factory.mktemp("scripted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_CACHE", str(scripted.cache(folder)))
        scripted.play(folder / "runs" / "code", source=scripted.written(folder), project=project)
    return folder


@pytest.fixture
def code_run(played_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of such a run, two tasks and four attempts, with the cache that it was played with."""
    monkeypatch.setenv("SELFPLAY_CACHE", str(played_code / "cache"))
    return Path(shutil.copytree(played_code / "runs" / "code", tmp_path / "runs" / "code"))
