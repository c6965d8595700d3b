"""What several tests share: toy runs, built from the shipped `demo` preset in a temporary folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from selfplay.build import Outcome, execute
from selfplay.config import Config, load
from selfplay.events import Event, Interrupt, ignore
from selfplay.project import Project, find_project
from tests import forked, scripted
from tests.backends import needed

SMALL = (
    *("play.proposals=4", "play.attempts=4", "play.min_viable=2"),
    *("curriculum.seeds=2", "run.save_every=2", "learner.lr=1e-3"),
)
"""A step of the toy game in a tenth of a second."""

ALONE = ("sandbox/", "cli/test_sandbox.py", "crash/test_sandboxes.py")
"""Tests that look at all sandboxes of the machine and remove dead ones: one after the other, in one worker."""

# note: read once, when torch is imported. As in a run, threads that wait must not spin; nor must each of two workers
# compute on every core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# note: what an example takes is the machine's business.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two for all tests; none for a part of them, which would be done before two had imported everything."""
    return 2 if Path(__file__).parent in [Path(word).resolve() for word in config.args] else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests, which share fixtures, stay in one worker."""
    for item in items:
        file = item.path.relative_to(Path(__file__).parent).as_posix()
        item.add_marker(pytest.mark.xdist_group("machine" if file.startswith(ALONE) else file))


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """What processes are forked from ends with the tests."""
    yield
    forked.close()


@pytest.fixture(scope="session")
def project() -> Project:
    """This checkout."""
    return find_project(explicit=Path(__file__).parent.parent)


@pytest.fixture
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder, which is the current one."""
    for name in ("SELFPLAY_PROJECT", "SELFPLAY_RUNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "selfplay.toml").write_text("")
    return tmp_path


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
def six_steps(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Outcome]) -> Path:
    """Six steps of the toy game, two of which change the weights, saved after steps 1, 3 and 5; to be copied."""
    folder = tmp_path_factory.mktemp("six") / "toy"
    play(folder, "run.keep_saves=9", steps=6)
    return folder


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
