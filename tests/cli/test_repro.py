from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfplay import __version__
from selfplay.cli import group

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
