from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfplay import __version__
from selfplay.cli import group
from selfplay.cli.origin import of_direct_url, of_folder

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
