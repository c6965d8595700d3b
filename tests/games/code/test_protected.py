"""What counts of a candidate's files."""

from __future__ import annotations

import pytest

from selfplay.games.code.protected import MAX_BYTES, MAX_FILE, filtered

TREE = ("pkg/a.py", "pkg/sub/b.py", "tests/test_a.py")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tests/test_a.py", "a test"),
        ("pkg/conftest.py", "a test"),
        ("sitecustomize.py", "run by itself when Python or pytest starts"),
        ("pkg/pytest.ini", "settings of tools"),
        ("pkg/__pycache__/a.pyc", "compiled"),
        (".git/config", "git's"),
        ("json.py", "in place of a module that the tests rest on"),
        ("pkg", "in place of a folder, or in a file"),
        ("pkg/a.py/b.py", "in place of a folder, or in a file"),
        ("../a.py", "not a path that may be written"),
        ("/etc/passwd", "not a path that may be written"),
        ("pkg//a.py", "not a path that may be written"),
        ("pkg/a.py/", "not a path that may be written"),
        ("pkg/\n.py", "not a path that may be written"),
        ("pkg/\udcff.py", "not a path that may be written"),
        ("a" * 201, "not a path that may be written"),
        ("a/" * 600 + "b", "not a path that may be written"),
        (".", "not a path that may be written"),
        ("", "not a path that may be written"),
    ],
)
def test_dropped_by_its_path(path: str, said: str) -> None:
    kept, dropped = filtered({path: b""}, tree=TREE)
    assert not kept
    assert list(dropped.values()) == [said]
    "".join(dropped).encode()


def test_what_counts_is_kept() -> None:
    files = {"pkg/a.py": b"x", "pkg/new.py": b"", "pkg/sub/b.py": None, "src/pkg/c.py": b"", "data.bin": b"\xff"}
    assert filtered(files, tree=TREE) == (files, {})


def test_removals_of_what_is_not_there_and_sizes() -> None:
    kept, dropped = filtered({"pkg/no.py": None, "big": b"x" * (MAX_FILE + 1), "fits": b"x" * MAX_FILE}, tree=TREE)
    assert list(kept) == ["fits"]
    assert dropped == {"pkg/no.py": "removed, and was not there", "big": "larger than 4 MiB"}
    part = b"x" * MAX_FILE
    kept, dropped = filtered({f"f{i:02}": part for i in range(MAX_BYTES // MAX_FILE + 2)}, tree=TREE)
    assert len(kept) == MAX_BYTES // MAX_FILE
    assert set(dropped.values()) == {"beyond 32 MiB in all"}


def test_files_of_a_candidate_that_do_not_go_together() -> None:
    kept, dropped = filtered({"new": b"", "new/a.py": b""}, tree=TREE)
    assert (list(kept), list(dropped)) == (["new"], ["new/a.py"])


def test_only_what_is_allowed() -> None:
    kept, dropped = filtered({"pkg/a.py": b"", "docs/a.py": b""}, tree=TREE, allow=("pkg/*",))
    assert list(kept) == ["pkg/a.py"]
    assert dropped == {"docs/a.py": "not among the paths that may change"}
