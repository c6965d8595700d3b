"""Reads and writes files below a folder that an adversary may have arranged, without following a link.

Every component is opened relative to its parent's descriptor with O_NOFOLLOW, so that no name can be
swapped between check and use. Only regular files are read.

Not covered: what the bytes mean; folders that are not open here (the Docker backend does this inside).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The components of a relative path that stays below its root.

    Raises:
        PermissionError: it is absolute, empty, or climbs.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path:
        raise PermissionError(errno.EACCES, "not a path below the folder", path)
    return pure.parts


def read_file(root: int, path: str, *, max_bytes: int) -> bytes:
    """The bytes of one regular file below the folder open as `root`.

    Raises:
        FileNotFoundError: it is not there.
        PermissionError: it, or a folder on the way, is a link; or it is a device, a pipe or a folder.
        ValueError: it is longer than `max_bytes`.
    """
    *folders, name = parts_of(path)
    with _walk(root, folders, path) as parent:
        try:
            # note: O_NONBLOCK, because opening a pipe would wait for its writer.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise PermissionError(errno.EACCES, "a link or a socket, not a file", path) from error
            if error.errno == errno.ENAMETOOLONG:
                raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
            raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise PermissionError(errno.EACCES, "not a regular file", path)
    with os.fdopen(fd, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path} is longer than {max_bytes} bytes")
    return content


def write_files(root: int, files: Mapping[str, bytes], *, uid: int | None = None) -> None:
    """Write `files` below the folder open as `root`, replacing what has the name; parents are made.

    `uid` (user and group) becomes the owner of what is made; None leaves it to the caller's.

    Raises:
        PermissionError: a path climbs, goes through a link, or names a folder.
        OSError: the file system refuses (full, limit).
    """
    for path, content in files.items():
        *folders, name = parts_of(path)
        with _walk(root, folders, path, make=True, uid=uid) as parent:
            try:
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                pass
            except IsADirectoryError as error:
                raise PermissionError(errno.EACCES, "a folder, not a file", path) from error
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, mode=0o644, dir_fd=parent)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if uid is not None:
                os.fchown(file.fileno(), uid, uid)


def opened_folder(root: int, path: str) -> contextlib.AbstractContextManager[int]:
    """A folder below the one open as `root`, as a descriptor; an empty path is the root itself.

    Raises:
        FileNotFoundError: it is not there, or no folder.
        PermissionError: it climbs, or goes through a link.
    """
    return _walk(root, list(parts_of(path)) if path else [], path)


@contextlib.contextmanager
def _walk(root: int, folders: list[str], path: str, *, make: bool = False, uid: int | None = None) -> Iterator[int]:
    """The descriptor of the last of `folders`, each opened below the one before."""
    # note: not a duplicate, which would share the place in the folder with whoever else is listing it.
    current = os.open(".", _FOLDER, dir_fd=root)
    try:
        for folder in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, mode=0o755, dir_fd=current)
                    if uid is not None:
                        os.chown(folder, uid, uid, dir_fd=current, follow_symlinks=False)
            try:
                below = os.open(folder, _FOLDER, dir_fd=current)
            except NotADirectoryError as error:
                if make or stat.S_ISLNK(os.stat(folder, dir_fd=current, follow_symlinks=False).st_mode):
                    raise PermissionError(errno.EACCES, "goes through a link or a file", path) from error
                raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    # note: no file has that name, and it is the candidate's or the policy's, not the machine's fault.
                    raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
                raise
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)
