"""The look for clean copies, function by function: what is a copy, and what only looks like one."""

from __future__ import annotations

import hashlib
import json
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from selfplay.games.code import looker

CORE = "def add(a, b):\n    total = a + b\n    return total\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "pkg").mkdir(parents=True)
    (made / "pkg" / "core.py").write_text(CORE)
    return made


def described(text: str) -> tuple[int, str]:
    return len(text.encode()), hashlib.sha256(text.encode()).hexdigest()


def test_source_is_the_same_by_size_and_content(tmp_path: Path) -> None:
    copy, other, link = (tmp_path / name for name in ("copy.py", "other.py", "link.py"))
    copy.write_text(CORE)
    other.write_text(CORE.replace("+", "-"))
    link.symlink_to(copy)
    assert looker.same_source(str(copy), described(CORE))
    for path in (other, link, tmp_path / "missing.py", tmp_path):
        assert not looker.same_source(str(path), described(CORE))


def test_bytecode_is_the_same_by_what_it_does(tree: Path, tmp_path: Path) -> None:
    looker.compiled_module.cache_clear()
    same, other = tmp_path / "same.py", tmp_path / "other.py"
    same.write_text(CORE)
    other.write_text(CORE.replace("+", "-"))
    compiled = [Path(str(py_compile.compile(str(path), cfile=f"{path}c"))) for path in (same, other)]
    found = [looker.same_code(str(path), "pkg/core.py", described(CORE), str(tree)) for path in compiled]
    assert found == [True, False]
    torn = tmp_path / "torn.pyc"
    torn.write_bytes(compiled[0].read_bytes()[:-10])
    assert not looker.same_code(str(torn), "pkg/core.py", described(CORE), str(tree))
    foreign = tmp_path / "foreign.pyc"
    foreign.write_bytes(b"\0" * 12 + len(CORE).to_bytes(4, "little") + b"... /build/pkg/core.py ...")
    assert looker.same_code(str(foreign), "pkg/core.py", described(CORE), str(tree))
    assert [looker.level(f"core.cpython-311{part}.pyc") for part in ("", ".opt-1", ".opt-2")] == [0, 1, 2]


def test_bytecode_in_the_tree_is_found_but_for_tests(tree: Path) -> None:
    for path in (
        "pkg/__pycache__/core.cpython-311.pyc",
        "tests/__pycache__/test_a.cpython-311-pytest-8.pyc",
        "pkg/b.pyc",
    ):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(b"")
    modules = {"pkg/core.py": described(CORE)}
    found = list(looker.compiled(str(tree), modules, frozenset({"tests/test_a.py"})))
    assert sorted(said.split()[0] for said in found) == ["pkg/__pycache__/core.cpython-311.pyc", "pkg/b.pyc"]


def test_what_the_interpreter_would_find_elsewhere(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "site"
    (home / "looked_for").mkdir(parents=True)
    (home / "looked_for" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tree), str(home)])
    assert list(looker.importable(["looked_for"], str(tree))) == [
        f"`looked_for` is installed at {home}/looked_for/__init__.py"
    ]
    assert list(looker.importable(["pkg_of_nobody"], str(tree))) == []
    assert looker.inside(str(tree / "pkg"), str(tree))
    assert not looker.inside(str(home), str(tree))
    assert looker.hidden(str(tree), str(tree))
    assert looker.hidden("/proc", str(tree))


def test_the_program_answers_in_json(tree: Path) -> None:
    asked = {"tops": [], "modules": {"pkg/core.py": described(CORE)}, "tests": [], "everywhere": False, "small": 1}
    program = Path(looker.__file__).read_text()
    (tree / "pkg" / "old.pyc").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-B", "-c", program],
        input=json.dumps(asked),
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["pkg/old.pyc in the work tree is bytecode of the package"]
