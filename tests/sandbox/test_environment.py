from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.sandbox.environment import python_argv, tool_environment


def test_environment_holds_the_tools_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path))
    made = tool_environment(["pytest-json-report"])
    names = {version.partition("==")[0] for version in made.versions}
    assert {"pytest", "pytest-json-report", "pytest-metadata", "pluggy", "iniconfig"} <= names
    assert "torch" not in names
    assert made.path.parent == tmp_path / "env"
    script = "import pytest, pytest_jsonreport, sys; print(sys.prefix)"
    run = subprocess.run(python_argv(made.python, "-c", script), capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()) == made.path
    absent = subprocess.run(python_argv(made.python, "-c", "import torch"), capture_output=True, check=False)
    assert absent.returncode != 0
    before = made.path.stat().st_mtime_ns
    assert tool_environment(["pytest-json-report"]) == made
    assert made.path.stat().st_mtime_ns == before, "it was made twice"
    assert [entry.name for entry in made.path.parent.iterdir()] == [made.digest], "something was left aside"


def test_tool_that_is_not_installed() -> None:
    with pytest.raises(NotReady) as caught:
        tool_environment(["no-such-distribution"])
    assert caught.value.hint == "pip install no-such-distribution"
