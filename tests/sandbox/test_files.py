from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from selfplay.sandbox.files import parts_of, read_file, write_files


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_what_is_written_is_read(root: int) -> None:
    write_files(root, {"a/b": b"1", "a/c": b"22"})
    write_files(root, {"a/b": b"333"})
    assert read_file(root, "a/b", max_bytes=3) == b"333"
    assert read_file(root, "./a/c", max_bytes=3) == b"22"
    with pytest.raises(ValueError):
        read_file(root, "a/b", max_bytes=2)
    for missing in ("x", "a/x", "x/y", "a/b/c", "é" * 150, f"a/{'x' * 300}", f"{'x' * 300}/y"):
        with pytest.raises(FileNotFoundError):
            read_file(root, missing, max_bytes=2)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "..", "a/../../b", "a\0b", "."])
def test_paths_that_leave_are_refused(root: int, path: str) -> None:
    with pytest.raises(PermissionError):
        parts_of(path)
    with pytest.raises(PermissionError):
        read_file(root, path, max_bytes=1)
    with pytest.raises(PermissionError):
        write_files(root, {path: b""})


def test_links_pipes_and_folders_are_refused(root: int, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    (tmp_path / "link").symlink_to(outside / "secret")
    (tmp_path / "linked").symlink_to(outside)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in ("link", "linked/secret", "folder", "pipe"):
        with pytest.raises(PermissionError):
            read_file(root, path, max_bytes=10)
    for path in ("linked/new", "folder"):
        with pytest.raises(PermissionError):
            write_files(root, {path: b"x"})
    assert sorted(entry.name for entry in outside.iterdir()) == ["secret"]
    write_files(root, {"link": b"replaced"})
    assert (outside / "secret").read_bytes() == b"s"
    assert read_file(root, "link", max_bytes=10) == b"replaced"
