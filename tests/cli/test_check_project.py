"""`selfplay check` in a project: what is wrong is said with file and line before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Typed = tuple[int, str, str]


def test_what_init_made_is_sound(here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    assert typed("init", "--game", "echo")[0] == 0
    data = answered("check")
    assert data["ok"]
    assert {(row["kind"], row["name"]) for row in data["project"]} == {
        ("settings", "selfplay.toml"),
        ("preset", "demo"),
        ("role", "echo_proposer"),
        ("role", "echo_solver"),
    }


def test_everything_wrong_is_listed_with_its_place(
    here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    typed("init", "--game", "echo")
    (here / "selfplay.toml").write_text("[learner]\nlearning_rate = 1\n")
    (here / "curricula" / "mine.toml").write_text('[run]\ngame = "echo"\n[roles]\nsolver = "nobody"\n')
    (here / "roles" / "echo_solver" / "prompt.md").write_text("Say\n{% if %}")
    (here / "roles" / "echo_proposer" / "role.toml").write_text('game = "echo"\nside = "middle"\n')
    (here / "sandboxes" / "box").mkdir(parents=True)
    (here / "sandboxes" / "box" / "sandbox.toml").write_text("memory = ")
    data = answered("check", code=1)
    wrong = {row["name"]: row["what"] for row in data["project"] if not row["ok"]}
    assert set(wrong) == {"selfplay.toml", "demo", "mine", "echo_solver", "echo_proposer", "box"}
    assert "unknown key `learner.learning_rate` (selfplay.toml, line 2)" in wrong["selfplay.toml"]
    assert "prompt.md, line 2" in wrong["echo_solver"]
    assert "role.toml" in wrong["echo_proposer"]
    code, out, err = typed("check")
    assert code == 1
    assert "fix: did you mean `learner.lr`?" in out
    assert err == "\nthe project: 6 read, 6 wrong\n"


def test_options_of_runs_and_repositories_are_refused(here: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("check", "--read-only")
    assert (code, err.splitlines()[0]) == (2, "error: these options are for a run or a repository")


def test_where_there_is_no_project_what_is_shipped_is_read(
    here: Path, answered: Callable[..., Any], monkeypatch: Any
) -> None:
    (here / "selfplay.toml").unlink()
    monkeypatch.setattr("selfplay.project._is_project", lambda folder: False)
    rows = answered("check")["project"]
    assert {"preset", "role", "sandbox"} == {row["kind"] for row in rows}
