"""How the program inside a container reads and writes files: no link is followed, whatever the candidate arranged.

The manner is that of `files`, without its imports: this is sent as source, in front of `agent`.

Not covered: what the bytes mean, the line they come over (`agent`).
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from selfplay.sandbox.agent import Line

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES = 1 << 16
_NAME_TOO_LONG = 36
"""ENAMETOOLONG."""


def get(line: "Line", fields: list[bytes]) -> None:
    """One regular file below a folder; no link is followed on the way."""
    root, path, most = fields[0], fields[1], int(fields[2])
    *folders, name = parts_of(path)
    parent = walk(root, folders, make=False)
    try:
        # note: O_NONBLOCK, because opening a pipe would wait for its writer.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno in (6, 40):
            # ENXIO, ELOOP
            raise PermissionError(f"a link or a socket, not a file: {os.fsdecode(path)}") from error
        if error.errno == _NAME_TOO_LONG:
            raise FileNotFoundError(f"no such file: {os.fsdecode(path)}") from error
        raise
    finally:
        os.close(parent)
    try:
        mode = os.fstat(fd).st_mode
        if mode & 0o170000 != 0o100000:
            raise PermissionError(f"not a regular file: {os.fsdecode(path)}")
        while chunk := os.read(fd, _READ_BYTES):
            most -= len(chunk)
            if most < 0:
                raise ValueError(f"{os.fsdecode(path)} is longer than {int(fields[2])} bytes")
            line.part(chunk)
    finally:
        os.close(fd)
    line.done()


def put(line: "Line", fields: list[bytes]) -> None:
    """Files out of the body (length of path 4, of content 8, both), each replacing what has its name."""
    while line.left:
        size = line.exactly(12)
        path = line.exactly(int.from_bytes(size[:4], "big"))
        left = int.from_bytes(size[4:], "big")
        *folders, name = parts_of(path)
        parent = walk(fields[0], folders, make=True)
        try:
            try:
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                # As it should be.
                pass
            except IsADirectoryError as error:
                raise PermissionError(f"a folder, not a file: {os.fsdecode(path)}") from error
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o644, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            while left:
                chunk = line.body(left)
                left -= len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
    line.done()


def parts_of(path: bytes) -> list[bytes]:
    """The components of a path that stays below its root."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if path.startswith(b"/") or not parts or b".." in parts:
        raise PermissionError(f"not a path below the folder: {os.fsdecode(path)}")
    return parts


def walk(root: bytes, folders: list[bytes], *, make: bool) -> int:
    """The descriptor of the last of `folders`, each opened below the one before."""
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for folder in folders:
        try:
            if make:
                try:  # noqa: SIM105
                    os.mkdir(folder, 0o755, dir_fd=current)
                except FileExistsError:
                    pass
            below = os.open(folder, _FOLDER, dir_fd=current)
        except NotADirectoryError as error:
            mode = os.stat(folder, dir_fd=current, follow_symlinks=False).st_mode
            if make or mode & 0o170000 == 0o120000:
                raise PermissionError(f"goes through a link or a file: {os.fsdecode(folder)}") from error
            raise FileNotFoundError(f"no such file: {os.fsdecode(folder)}") from error
        except OSError as error:
            if error.errno == _NAME_TOO_LONG:
                # note: no file has that name, which is not the machine's fault.
                raise FileNotFoundError(f"no such file: {os.fsdecode(folder)}") from error
            raise
        finally:
            os.close(current)
        current = below
    return current
