from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.config import load
from selfplay.project import find_project

Typed = tuple[int, str, str]


@pytest.mark.parametrize(
    ("game", "preset", "role"), [("code", "quickstart", "injector"), ("echo", "demo", "echo_solver")]
)
def test_a_project_that_works_as_it_is(
    here: Path, typed: Callable[..., Typed], game: str, preset: str, role: str
) -> None:
    code, out, err = typed("init", "mine", "--game", game)
    assert code == 0
    assert f"write  mine/curricula/{preset}.toml\n" in out
    assert f"cd mine && selfplay run {preset}" in err
    project = find_project(explicit=here / "mine")
    assert next(one for one in project.list_all("role") if one.name == role).origin == "project"
    assert load(preset, project=project, environ={}).run.game == game
    assert typed("--project", "mine", "run", preset, "--plan")[0] == 0


def test_every_key_stands_in_it_and_may_be_uncommented(here: Path, typed: Callable[..., Typed]) -> None:
    from selfplay.config import Config

    typed("init", "mine", "--game", "echo")
    file = here / "mine" / "selfplay.toml"
    text = file.read_text()
    assert len(re.findall(r"^# \w+ = ", text, re.MULTILINE)) == len(Config().values())
    file.write_text(re.sub(r"^# (?=\w+ = (?!unset))", "", text, flags=re.MULTILINE))
    own, plain = (find_project(explicit=folder) for folder in (here / "mine", here))
    assert load("demo", project=own, environ={}).values() == load("demo", project=plain, environ={}).values()


def test_what_is_there_stays(here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    typed("init", "mine")
    file = here / "mine" / "selfplay.toml"
    file.write_text("# mine\n")
    data = answered("init", "mine")
    assert data["written"] == []
    assert "selfplay.toml" in data["skipped"]
    assert file.read_text() == "# mine\n"
    assert "skip   mine/selfplay.toml" in typed("init", "mine")[1]
    typed("init", "mine", "--force")
    assert file.read_text() != "# mine\n"
