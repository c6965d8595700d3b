"""A fork starts from another run's weights with other settings, and needs the other run for nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import fork
from selfplay.build import Outcome
from selfplay.config import Config, diff
from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.ledger import Ledger
from selfplay.types import play_id

Play = Callable[..., Outcome]
Configured = Callable[..., Config]

OTHER = "learner.lr=0.002"


@pytest.fixture
def parent(tmp_path: Path, six_steps: Path) -> Path:
    """A copy of the run of six steps."""
    return Path(shutil.copytree(six_steps, tmp_path / "old"))


@pytest.fixture
def forked(toy_config: Configured) -> Callable[..., Path]:
    """`forked(parent, "learner.lr=0.1", step=3)`: the folder of a fork beside it, not yet played."""

    def make(parent: Path, *sets: str, step: int | None = None, name: str = "new") -> Path:
        folder = parent.with_name(name)
        with Ledger.read(parent) as reader:
            old = Config.model_validate(tables(reader.run_row().config))
        config = toy_config("run.steps=3", *(sets or (OTHER,)))
        fork.make(config, fork.find(parent, diff(old, config), step=step), folder=folder)
        return folder

    return make


def tables(values: object) -> dict[str, dict[str, object]]:
    """`{"run.seed": 0}` -> `{"run": {"seed": 0}}`."""
    assert isinstance(values, dict)
    found: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        table, key = name.split(".")
        found.setdefault(table, {})[key] = tuple(value) if isinstance(value, list) else value
    return found


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def test_a_fork_starts_from_the_save_and_goes_on_from_its_version(parent: Path, play: Play, forked: Callable) -> None:
    folder = forked(parent, step=3)
    with Ledger.read(parent) as before:
        save = next(save for save in before.saves() if save.step == 3)
    with Ledger.read(folder) as ledger:
        row = ledger.parent_row()
        assert row is not None
        assert (row.words, row.policy_version, row.weights_digest) == (
            "old@3",
            save.policy_version,
            save.weights_digest,
        )
        assert dict(row.changed) == {"learner.lr": (0.001, 0.002)}
        assert ledger.status().policy_version == save.policy_version
    assert play(folder, OTHER, steps=3).steps == 3
    with Ledger.read(folder) as ledger:
        first = ledger.trajectories(0, "propose")[0]
        assert first.policy_version == (save.policy_version, save.policy_version)
        place = {name: getattr(first, name) for name in ("step", "stage", "role", "subject_id", "index", "attempt")}
        assert first.id == play_id(ledger.run_row().config_digest, **place)
        versions = [update.policy_version for update in ledger.updates("play")]
        changes = [update for update in ledger.updates("play") if update.skipped is None]
        assert versions[-1] == save.policy_version + len(changes)
        assert not ledger.updates("warmup")
        older = ledger.parent()
        assert older is not None
        with older:
            assert older.last_closed_step() == 5


def test_two_forks_are_equal_and_an_interrupted_one_too(parent: Path, play: Play, forked: Callable) -> None:
    whole, parts = forked(parent, name="whole"), forked(parent, name="parts")
    play(whole, OTHER, steps=4)
    play(parts, OTHER, "run.save_every=100", steps=2)
    for save in (parts / "weights").glob("step_*"):
        shutil.rmtree(save)
    play(parts, OTHER, steps=4)
    assert digests(whole) == digests(parts)


def test_a_fork_needs_nothing_of_its_parent(parent: Path, play: Play, forked: Callable) -> None:
    folder = forked(parent)
    shutil.rmtree(parent)
    assert play(folder, OTHER, steps=2).steps == 2
    with Ledger.read(folder) as ledger:
        assert ledger.parent() is None
    assert play(forked(folder, "learner.lr=0.004", name="third"), "learner.lr=0.004", steps=1).steps == 1


def test_the_parent_is_only_read_while_it_is_held(parent: Path, play: Play, forked: Callable) -> None:
    before = {path: path.stat().st_mtime_ns for path in (parent / "weights").rglob("*")}
    with Ledger.open(parent):
        assert play(forked(parent), OTHER, steps=1).steps == 1
    assert before == {path: path.stat().st_mtime_ns for path in (parent / "weights").rglob("*")}


def test_weights_are_linked_where_that_works_and_copied_elsewhere(
    parent: Path, forked: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "model.safetensors"
    linked = forked(parent)
    assert (linked / fork.START / name).samefile(parent / "weights" / "step_000005" / name)

    def refuse(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    copied = forked(parent, name="copied")
    assert not (copied / fork.START / name).samefile(linked / fork.START / name)
    assert (copied / fork.START / name).read_bytes() == (linked / fork.START / name).read_bytes()


def test_what_cannot_be_forked_is_one_sentence(parent: Path, forked: Callable, play: Play) -> None:
    with pytest.raises(NotFound, match="no save after step 4; on disk are those after 1, 3, 5") as error:
        forked(parent, step=4)
    assert error.value.hint.endswith("--fork old@5")
    with pytest.raises(UserError, match="nothing differs from the settings of run `old`"):
        forked(parent, "run.steps=9")
    with pytest.raises(UserError, match="has weights of `toy`, which `smollm2-135m` cannot take over"):
        forked(parent, "policy.model=smollm2-135m")
    with pytest.raises(NotFound, match="there is no run in"):
        fork.find(parent.with_name("nowhere"), [])
    shutil.rmtree(parent / "weights")
    with pytest.raises(NotFound, match="no weights on disk to fork from"):
        forked(parent)
    assert sorted(path.name for path in parent.parent.iterdir()) == ["old"]


def test_the_same_again_is_the_same_fork_and_another_is_refused(parent: Path, forked: Callable, play: Play) -> None:
    folder = forked(parent, step=3)
    play(folder, OTHER, steps=1)
    before = digests(folder)
    assert forked(parent, step=3) == forked(parent) == folder
    assert digests(folder) == before
    with pytest.raises(UserError, match="a run `new` already, and it is a fork of old@3"):
        forked(parent, step=1)
    with pytest.raises(UserError, match="a run `old` already, and it is no fork"):
        forked(parent, name="old")


def test_a_fork_whose_start_is_gone_says_so(parent: Path, forked: Callable, play: Play) -> None:
    folder = forked(parent, step=3)
    shutil.rmtree(folder / "weights")
    with pytest.raises(RunFailed, match="the weights that this run was forked from are gone") as error:
        play(folder, OTHER, steps=1)
    assert "copy weights/step_000003 of run `old@3` there" in error.value.hint
    shutil.copytree(parent / "weights" / "step_000003", folder / "weights" / "start")
    assert play(folder, OTHER, steps=1).steps == 1


def test_a_fork_that_was_killed_while_it_was_made_is_made_again(parent: Path, forked: Callable, play: Play) -> None:
    code = (
        "import os, sys; from pathlib import Path; from selfplay import fork; from selfplay.config import Config;"
        "from selfplay.config import Difference; from selfplay.ledger import files;"
        "files.create = lambda *given, **named: os.kill(os.getpid(), 9);"
        "parent = Path(sys.argv[1]); changed = [Difference(key='learner.lr', old=1, new=2)];"
        "fork.make(Config(), fork.find(parent, changed), folder=parent.with_name('new'))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(parent)], check=False)
    assert done.returncode == -9
    assert (parent.with_name("new") / fork.START).is_dir()
    assert play(forked(parent), OTHER, steps=1).steps == 1
