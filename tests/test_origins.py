"""What a run plays with beside its settings: recorded once, compared at every launch and before anything is judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import origins, parts
from selfplay.build import execute
from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.evaluation.grounds import on_run
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger
from selfplay.project import Project, find_project
from selfplay.types import Seed


@pytest.fixture
def own(tmp_path: Path, project: Project) -> Project:
    """A project with its own copy of the toy game's roles, and a package."""
    for name in ("echo_proposer", "echo_solver"):
        shutil.copytree(project.find("role", name), tmp_path / "roles" / name)
    (tmp_path / "selfplay.toml").write_text("")
    (tmp_path / "small" / "tests").mkdir(parents=True)
    (tmp_path / "small" / "counts.py").write_text("def more(x):\n    return x + 1\n")
    (tmp_path / "small" / "tests" / "test_counts.py").write_text("def test_more():\n    assert True\n")
    return find_project(explicit=tmp_path)


def launch(config: Config, project: Project, folder: Path) -> str:
    return execute(config, project=project, folder=folder, observe=ignore, interrupt=Interrupt()).stop


def test_a_role_that_was_edited_is_refused_until_it_is_what_it_was(
    tmp_path: Path, own: Project, toy_config: Callable[..., Config]
) -> None:
    folder, prompt = tmp_path / "runs" / "one", tmp_path / "roles" / "echo_solver" / "prompt.md"
    before = prompt.read_text()
    assert launch(toy_config("run.steps=1"), own, folder) == "done"
    with Ledger.read(folder) as reader:
        assert set(reader.origins()) == {"role echo_proposer", "role echo_solver"}
        comparable = reader.comparable()
    prompt.write_text(before + "Think twice.\n")
    with pytest.raises(UserError, match=r"roles/echo_solver has changed since run `one`") as refused:
        launch(toy_config("run.steps=2"), own, folder)
    assert "--fork one" in str(refused.value.hint)
    with Ledger.read(folder) as reader:
        assert reader.comparable() == comparable, "nothing was played"
    prompt.write_text(before)
    assert launch(toy_config("run.steps=2"), own, folder) == "done"


def test_a_run_of_an_older_schema_takes_what_it_finds(
    tmp_path: Path, own: Project, toy_config: Callable[..., Config]
) -> None:
    folder = tmp_path / "runs" / "one"
    config = toy_config("run.steps=1")
    Ledger.create(folder, config_digest=config.digest, config=config.values(), seed=0, game="echo").close()
    assert launch(config, own, folder) == "done"
    with Ledger.read(folder) as reader:
        assert reader.origins() == origins.of(config, own, parts.roles(config, own))


def test_a_folder_that_was_edited_is_seen(tmp_path: Path, own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    folder, source = tmp_path / "runs" / "one", tmp_path / "small" / "counts.py"
    config = load("quickstart", project=own, sets=['game.source="./small"'], environ={})
    config.write(folder)
    found = origins.of(config, own, parts.roles(config, own))
    assert set(found) == {"source", "role injector", "role repairer"}
    with Ledger.create(folder, config_digest=config.digest, config=config.values(), seed=0, game="code") as ledger:
        ledger.append_origins(found)
        ledger.append(Seed(id="s", game="code", source="small", payload={}, split="held_out"))
    assert on_run(folder, count=None, sandbox=None, project=own).folder == folder
    source.write_text("K = 3\n" + source.read_text())
    assert origins.of(config, own, parts.roles(config, own))["source"] != found["source"]
    with pytest.raises(UserError, match=r"the source has changed since run `one`"):
        on_run(folder, count=None, sandbox=None, project=own)


def test_a_run_in_a_source_is_not_of_it(tmp_path: Path, own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    config = load("quickstart", project=own, sets=['game.source="./small"'], environ={})
    roles = parts.roles(config, own)
    before = origins.of(config, own, roles)
    run = tmp_path / "small" / "runs" / "mine"
    Ledger.create(run, config_digest=config.digest, config=config.values(), seed=0, game="code").close()
    (run / "weights").mkdir()
    (run / "weights" / "model.safetensors").write_bytes(b"0" * 1000)
    assert origins.of(config, own, roles) == before
