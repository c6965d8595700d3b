from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = tuple[int, str, str]


@pytest.mark.parametrize(
    ("typed_so_far", "offered"),
    [
        ("insp", ["inspect"]),
        ("inspect t", ["toy"]),
        ("inspect toy --be", ["--best"]),
        ("run demo-fr", ["demo-frontier"]),
        ("run -s learner.los", ["learner.loss="]),
        ("set toy run.st", ["run.steps="]),
        ("show ro", ["role"]),
        ("show role echo_s", ["echo_solver"]),
        ("schema insp", ["inspect"]),
        ("plot toy --metric held", ["held_out"]),
        ("compare toy nothing", []),
    ],
)
def test_names_of_this_project_are_offered(
    with_run: Path,
    typed: Callable[..., Typed],
    monkeypatch: pytest.MonkeyPatch,
    typed_so_far: str,
    offered: list[str],
) -> None:
    words = f"selfplay {typed_so_far}"
    monkeypatch.setenv("_SELFPLAY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    code, out, _ = typed()
    assert code == 0
    assert [row.partition(",")[2] for row in out.splitlines() if row] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(typed: Callable[..., Typed], shell: str) -> None:
    code, out, err = typed("completion", shell)
    assert code == 0
    assert "_SELFPLAY_COMPLETE" in out
    assert f"selfplay completion {shell}" in err
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=out, text=True, check=True)
