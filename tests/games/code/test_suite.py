"""Which settings of a repository's pytest configuration are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.games.code.source import fetch
from selfplay.games.code.suite import Suite, suite_of


def suite(tmp_path: Path, files: dict[str, str]) -> Suite:
    for path, text in {"a.py": "", "checks/test_a.py": "", **files}.items():
        (tmp_path / "r" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "r" / path).write_text(text)
    return suite_of(fetch(str(tmp_path / "r"), cache=tmp_path / "cache"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\npython_files = ["check_*.py"]\ntestpaths = ["checks", ".."]\n',
        ),
        ("pytest.ini", "[pytest]\npython_files = check_*.py\ntestpaths = checks\naddopts = -p evil\n"),
        ("tox.ini", "[pytest]\npython_files = check_*.py\ntestpaths = checks nowhere\n"),
        ("setup.cfg", "[tool:pytest]\npython_files = check_*.py\ntestpaths = checks\n"),
    ],
)
def test_every_home_of_pytests_settings(tmp_path: Path, path: str, text: str) -> None:
    assert suite(tmp_path, {path: text}) == Suite(
        roots=("",), options=("-o", "python_files=check_*.py"), paths=("checks",)
    )


def test_src_and_pythonpath_are_roots(tmp_path: Path) -> None:
    found = suite(tmp_path, {"src/p/__init__.py": "", "pytest.ini": "[pytest]\npythonpath = . lib ../up /abs\n"})
    assert found.roots == ("", "src", "lib")


def test_settings_that_cannot_be_read_are_as_good_as_none(tmp_path: Path) -> None:
    assert suite(tmp_path, {"pyproject.toml": "[[[", "setup.cfg": "no section"}) == Suite(
        roots=("",), options=(), paths=()
    )
