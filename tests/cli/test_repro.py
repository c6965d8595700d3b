from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfplay import __version__, fork
from selfplay.cli import group
from selfplay.cli.origin import of_direct_url, of_folder
from selfplay.config import diff, from_run
from selfplay.ledger import Ledger
from selfplay.project import Project

Typed = tuple[int, str, str]


def test_what_it_takes(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, _ = typed("repro", "toy")
    assert code == 0
    assert "selfplay run runs/toy/config.toml --name toy-again --steps 2\n" in out
    data = answered("repro", "toy")
    assert data["engine"] == __version__
    assert data["fingerprints"][0].startswith("torch ")
    assert data["here"]["torch"]
    for line in data["commands"]:
        name, *words = shlex.split(line)[1:]
        if line.startswith("selfplay "):
            command = group.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            command.make_context(name, words, obj=None)


def test_a_fork_is_played_again_as_a_fork(
    with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    assert typed("run", "--fork", "toy@1", "--name", "child", "-s", "learner.lr=0.002", "--steps", "1")[0] == 0
    line = answered("repro", "child")["commands"][1]
    assert line == "selfplay run runs/child/config.toml --name child-again --fork toy@1 --steps 1"
    code, _, err = typed("repro", "child", "--to", "sent")
    assert code == 0
    assert "it is a fork of toy@1: that run is needed where it is played" in err
    sent = (with_run / "sent" / "commands.sh").read_text()
    assert "# It is a fork of toy@1: that run, " in sent
    assert sent.endswith("\nselfplay run config.toml --name child-again --fork toy@1 --steps 1\n")
    assert typed(*shlex.split(line)[1:])[0] == 0
    with Ledger.read(with_run / "runs" / "child") as one, Ledger.read(with_run / "runs" / "child-again") as other:
        assert one.comparable() == other.comparable()


def test_a_run_that_is_found_by_its_path(
    with_study_run: Path, project: Project, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    parent = with_study_run / "runs" / "studies" / "a study" / "warmup-0"
    folder = parent.parent / "full-0"
    old, new = (from_run(parent, project=project, sets=sets, environ={}) for sets in ((), ("learner.lr=0.002",)))
    fork.make(new, fork.find(parent, diff(old, new)), folder=folder)
    run, start = "'runs/studies/a study/full-0'", "'runs/studies/a study/warmup-0'@1"
    lines = answered("repro", str(folder))["commands"]
    config = "'runs/studies/a study/full-0/config.toml'"
    assert lines[1] == f"selfplay run {config} --name full-0-again --fork {start} --steps 0"
    assert lines[2:] == [f"selfplay compare {run} full-0-again"]
    assert typed(*shlex.split(lines[1])[1:], "--plan")[0] == 0
    _, _, err = typed("repro", str(folder), "--to", "sent it")
    assert "cd 'sent it' && " in err
    sent = (with_study_run / "sent it" / "commands.sh").read_text()
    assert f"--fork '{parent}'@1 " in sent


def test_it_names_what_can_be_installed(with_run: Path, answered: Callable[..., Any]) -> None:
    found = answered("repro", "toy")
    here = found["installed_from"]
    assert found["commands"][0] == f"pip install {shlex.quote(here['requirement'])}"
    if here["kind"] == "folder":
        assert (Path(here["where"]) / "pyproject.toml").is_file()


def test_where_an_installation_comes_from(tmp_path: Path) -> None:
    noted = {"url": "https://me:secret@example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "c" * 40}}
    assert of_direct_url(noted).command == (
        f"pip install 'selfplay-curriculum @ git+https://example.org/a.git@{'c' * 40}'"
    )
    assert of_folder(tmp_path).command == f"pip install {tmp_path}"
    (tmp_path / "a.txt").write_text("a")
    for words in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    found = of_folder(tmp_path)
    assert (found.kind, found.where, found.changed) == ("folder", str(tmp_path), False)
    assert found.commit is not None
    (tmp_path / "a.txt").write_text("b")
    assert of_folder(tmp_path).words.endswith("and changes that no commit holds")
    subprocess.run(["git", "-C", str(tmp_path), "checkout", "-q", "a.txt"], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", "https://u:p@example.org/a"], check=True)
    assert of_folder(tmp_path).requirement == f"selfplay-curriculum @ git+https://example.org/a@{found.commit}"
    assert of_direct_url({"url": "https://example.org/selfplay.whl", "archive_info": {}}).kind == "folder"


def test_a_folder_that_plays_it_again(with_run: Path, typed: Callable[..., Typed]) -> None:
    assert typed("repro", "toy", "--to", "again")[0] == 0
    folder = with_run / "again"
    assert {path.name for path in folder.iterdir()} == {"config.toml", "requirements.txt", "repro.json", "commands.sh"}
    assert json.loads((folder / "repro.json").read_text())["seed"] == 0
    assert "selfplay run config.toml --name toy-again" in (folder / "commands.sh").read_text()
    assert typed("run", str(folder / "config.toml"), "--plan")[0] == 0
    code, _, err = typed("repro", "toy", "--to", "again")
    assert code == 2
    assert "again holds config.toml, " in err
