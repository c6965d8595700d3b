from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.project import find_project

Typed = tuple[int, str, str]


def test_each_kind_is_shown(here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, err = typed("show", "role", "injector")
    assert code == 0
    assert out.startswith("# --- injector/prompt.md ---\n")
    assert err.startswith("shipped: ")
    assert typed("show", "preset", "demo")[1].startswith("# The toy game")
    assert "python/sandbox.toml" in answered("show", "sandbox", "python")["files"]


def test_a_copy_is_found_first(here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    data = answered("cp", "role", "injector")
    assert data["written"] == ["injector/prompt.md", "injector/role.toml"]
    (here / "roles" / "injector" / "prompt.md").write_text("mine\n")
    code, out, err = typed("show", "roles", "injector")
    assert code == 0
    assert "mine\n" in out
    assert err.startswith(f"project: {here / 'roles' / 'injector'}, in place of ")
    assert typed("cp", "preset", "demo", "other")[0] == 0
    assert find_project(explicit=here).find("curriculum", "other") == here / "curricula" / "other.toml"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["show", "role", "injektor"], "no role `injektor`", "did you mean `injector`? All roles: selfplay ls roles"),
        (["show", "roll", "injector"], "no kind `roll`", "did you mean `role`?"),
        (["cp", "preset", "dem0"], "no preset `dem0`", "did you mean `demo`?"),
        (["cp", "preset", "demo", "a/b"], "a run cannot be called `a/b`", "a name has up to 64"),
    ],
)
def test_bad_input(here: Path, typed: Callable[..., Typed], words: list[str], message: str, hint: str) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert hint in err


def test_nothing_is_written_over(here: Path, typed: Callable[..., Typed]) -> None:
    assert typed("cp", "preset", "demo", "mine")[0] == 0
    code, _, err = typed("cp", "preset", "demo", "mine")
    assert code == 2
    assert "mine.toml is there already" in err
    assert typed("cp", "preset", "demo", "mine", "--force")[0] == 0
    assert "is the project's own already" in typed("cp", "preset", "mine")[2]
