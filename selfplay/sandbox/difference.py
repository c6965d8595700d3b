"""What a candidate changed, as a git patch, found out without running or unpacking anything of the candidate's.

Both trees are read as data: out of a tar file, or out of a folder that is open here (every component without
following a link). Only contents go to git, through a bare repository of its own in a private folder; names never
reach the file system, so neither links nor `.git` folders, attributes, hooks, filters or configuration of the
tree have a say. What is no regular file, climbs, is not allowed or is too large is dropped, and said to be.

Bytecode and caches (`__pycache__`, `*.pyc`, `*.pyo`, `.pytest_cache`) are no part of a difference, in either tree,
and neither are empty folders, owners, times and permissions but the x bit. Links that are as they were are no
change; one that was removed is shown, one that is new or points elsewhere is dropped.

Not covered: which paths are worth keeping (the caller's `allow`), and applying the patch.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from selfplay.sandbox import Difference, SandboxInfraError
from selfplay.sandbox.files import opened_folder, read_file
from selfplay.types import record

GIT_SECONDS = 120.0
NAMES = 200_000
"""More new names than this are not looked at one by one."""
TEXT_BYTES = 1 << 19
"""Files larger than this are shown as binary."""
DEPTH = 100
"""Folders deeper than this are not entered."""
_CACHES = {"__pycache__", ".pytest_cache"}
_FILE, _PROGRAM, _LINK = "100644", "100755", "120000"
_END = bytes(1024)


@record
class Entry:
    """A name in a tree, of whatever kind."""

    path: str
    """Relative; bytes that are no UTF-8 are surrogate-escaped."""
    mode: str
    """git's: a file, a program or a link; empty where it is none of them."""
    size: int
    read: Callable[[], bytes]
    """The content, or where a link points to."""
    fault: str = ""
    """Why it can be no part of a patch."""


@record
class _Known:
    """An entry of the base."""

    mode: str
    size: int
    digest: bytes


def difference(
    tree: bytes | IO[bytes], base: str | None, *, allow: Sequence[str] = ("*",), max_bytes: int = 8 << 20
) -> Difference:
    """What the tar file `tree` differs in from the tar file at `base` (None: from an empty tree).

    `allow` are glob patterns over whole paths (`*` also matches `/`). `max_bytes` bounds the contents of what
    changed, in all, taken in the order of the paths.

    Raises:
        SandboxInfraError: a tar file is damaged or cut short, or git does not work here.
    """
    file = _seekable(tree)
    try:
        return compare(entries_of_tar(file, "the work tree"), base, allow=allow, max_bytes=max_bytes)
    finally:
        if file is not tree:
            file.close()


def compare(entries: Iterable[Entry], base: str | None, *, allow: Sequence[str], max_bytes: int) -> Difference:
    """What a tree, as `entries` tells it, differs in from the tar file at `base`.

    Raises:
        SandboxInfraError: as `difference`.
    """
    known = _base(base, _stamp(base)) if base is not None else {}
    found: dict[str, Entry] = {}
    for entry in entries:
        if not _is_cache(entry.path):
            found[entry.path] = entry
        if len(found) > NAMES + len(known):
            return Difference(patch=b"", changed=(), dropped={".": f"more than {NAMES} new names in the tree"})
    dropped: dict[str, str] = {}
    changed: dict[str, str] = {}
    new: list[tuple[str, str, bytes]] = []
    left = max_bytes
    for path in sorted({*known, *found}, key=os.fsencode):
        was, now = known.get(path), found.get(path)
        content, fault = _content(now, was, room=left) if now is not None else (b"", "")
        if any(parent in found and (now is not None or _is_odd(found[parent])) for parent in _parents(path)):
            fault = "below something that is no folder"
        if now is not None and was is not None and not fault and _same(now, was, content):
            continue
        if why := fault or _why_not(path, now, allow):
            dropped[path] = why
            continue
        changed[path] = "" if was is None else was.mode
        if now is not None:
            left -= len(content)
            new.append((path, now.mode, content))
    old = _old_contents(base, changed) if base is not None and changed else []
    return Difference(patch=_patch(old, new) if changed else b"", changed=tuple(changed), dropped=dropped)


def _content(entry: Entry, was: _Known | None, *, room: int) -> tuple[bytes, str]:
    """The content, and why there is none; without room for it, it is read only where it may be what it was."""
    if entry.fault:
        return b"", entry.fault
    if entry.size > room and (was is None or was.size != entry.size):
        return b"", "too large"
    try:
        content = entry.read()
    except (OSError, ValueError):
        return b"", "it cannot be read"
    if len(content) > room and (was is None or not _same(entry, was, content)):
        return b"", "too large"
    return content, ""


def _is_odd(entry: Entry) -> bool:
    """Is it dropped whatever it was, so that what the base has below it stays?"""
    return bool(entry.fault) or entry.mode == _LINK


def _same(now: Entry, was: _Known, content: bytes) -> bool:
    return now.mode == was.mode and _digest(content) == was.digest


def _why_not(path: str, now: Entry | None, allow: Sequence[str]) -> str:
    """Why a changed path is not in the patch; empty where it is."""
    if not any(fnmatch.fnmatchcase(path, pattern) for pattern in allow):
        return "not allowed"
    return "a link" if now is not None and now.mode == _LINK else ""


def _is_cache(path: str) -> bool:
    return path.endswith((".pyc", ".pyo")) or not _CACHES.isdisjoint(path.split("/"))


def _parents(path: str) -> list[str]:
    return [path[:place] for place, letter in enumerate(path) if letter == "/"]


def _is_git(part: str) -> bool:
    """Would git, on some file system, take this for its own folder?"""
    # note: those that ignore case, trailing dots and blanks, invisible characters, or have short names.
    seen = "".join(letter for letter in part if unicodedata.category(letter) != "Cf").casefold()
    return seen.partition(":")[0].rstrip(" .") in (".git", "git~1")


def _fault_of(path: str) -> str:
    """Why a name can be no part of a patch."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\0" in path:
        return "a name that leaves the tree"
    return "a name of git's own" if any(map(_is_git, parts)) else ""


def entries_of_tar(file: IO[bytes], what: str) -> Iterator[Entry]:
    """The entries of a tar file that can be sought in; of equal names the last one, as unpacking would have it.

    Raises:
        SandboxInfraError: it is no tar file, or was cut short.
    """
    try:
        # note: Python's reader takes a file without an end for a complete one; missing files would read as deleted.
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_END)))
        if file.read() != _END:
            raise tarfile.ReadError("it has no end")
        file.seek(0)
        tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115
        members = tar.getmembers()
    except (tarfile.TarError, OSError, ValueError) as error:
        raise SandboxInfraError(f"cannot read the tar file of {what}: {error}") from error
    seen: dict[str, Entry] = {}
    for member in members:
        path = "/".join(part for part in member.name.split("/") if part not in ("", "."))
        if member.name.startswith("/"):
            path = f"/{path}"
        if not member.isdir():
            seen[path] = _entry_of(tar, member, path, seen)
        elif path and _fault_of(path) == "":
            seen.pop(path, None)
    yield from seen.values()


def _entry_of(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, seen: dict[str, Entry]) -> Entry:
    fault = _fault_of(path)
    if member.islnk():
        # note: a second name of a file before it is a file, as it would be on disk.
        target = seen.get("/".join(part for part in member.linkname.split("/") if part not in ("", ".")))
        if target is None or target.fault or target.mode == _LINK:
            return Entry(path=path, mode="", size=0, read=bytes, fault=fault or "a link to nothing in the tree")
        return Entry(path=path, mode=target.mode, size=target.size, read=target.read, fault=fault)
    if member.issym():
        target_name = os.fsencode(member.linkname)
        return Entry(path=path, mode=_LINK, size=len(target_name), read=lambda: target_name, fault=fault)
    if not member.isreg():
        what = "a pipe" if member.isfifo() else "a device" if member.isdev() else "no regular file"
        return Entry(path=path, mode="", size=0, read=bytes, fault=fault or what)

    def read() -> bytes:
        content = tar.extractfile(member)
        assert content is not None
        try:
            return content.read()
        except tarfile.TarError as error:
            raise SandboxInfraError(f"a tar file ends in the middle of {path}") from error

    mode = _PROGRAM if member.mode & stat.S_IXUSR else _FILE
    return Entry(path=path, mode=mode, size=member.size, read=read, fault=fault)


def entries_of_folder(root: int) -> Iterator[Entry]:
    """The entries below the folder open as `root`, which an adversary may have arranged; no link is followed.

    `root` must stay open until they were read.

    Raises:
        SandboxInfraError: the folder itself cannot be read.
    """
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            with opened_folder(root, folder) as at, os.scandir(at) as found:
                for one in found:
                    path = f"{folder}/{one.name}" if folder else one.name
                    if not one.is_dir(follow_symlinks=False):
                        yield _entry_at(root, at, path, one.name)
                    elif path.count("/") < DEPTH:
                        todo.append(path)
                    else:
                        yield Entry(path=path, mode="", size=0, read=bytes, fault="too deep a folder")
        except OSError as error:
            if not folder:
                raise SandboxInfraError(f"cannot read the work tree: {error}") from error
            yield Entry(path=folder, mode="", size=0, read=bytes, fault="a folder that cannot be read")


def _entry_at(root: int, folder: int, path: str, name: str) -> Entry:
    """One name of the folder open as `folder`; a file is opened when it is read, again from `root`."""
    fault = _fault_of(path)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        target = os.fsencode(os.readlink(name, dir_fd=folder)) if stat.S_ISLNK(status.st_mode) else b""
    except OSError:
        return Entry(path=path, mode="", size=0, read=bytes, fault="gone while it was looked at")
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return Entry(path=path, mode=_LINK, size=len(target), read=lambda: target, fault=fault)
    if kind != stat.S_IFREG:
        what = "a pipe" if kind == stat.S_IFIFO else "a socket" if kind == stat.S_IFSOCK else "a device"
        return Entry(path=path, mode="", size=0, read=bytes, fault=fault or what)
    mode = _PROGRAM if status.st_mode & stat.S_IXUSR else _FILE
    size = status.st_size
    return Entry(path=path, mode=mode, size=size, read=lambda: read_file(root, path, max_bytes=size), fault=fault)


@functools.lru_cache(maxsize=8)
def _base(path: str, stamp: tuple[int, ...]) -> dict[str, _Known]:
    """What the tar file at `path` holds; `stamp` tells one version of it from the next."""
    try:
        with open(path, "rb") as file:
            known = {}
            for entry in entries_of_tar(file, path):
                if entry.fault:
                    raise SandboxInfraError(f"the tar file {path} holds {entry.path}, which is {entry.fault}")
                if not _is_cache(entry.path):
                    content = entry.read()
                    known[entry.path] = _Known(mode=entry.mode, size=len(content), digest=_digest(content))
            return known
    except OSError as error:
        raise SandboxInfraError(f"cannot read the tar file {path}: {error}") from error


def _old_contents(base: str, wanted: dict[str, str]) -> list[tuple[str, str, bytes]]:
    """Path, mode and content of what is `wanted` (path -> mode) of the tar file at `base`."""
    with open(base, "rb") as file:
        return [(one.path, one.mode, one.read()) for one in entries_of_tar(file, base) if one.path in wanted]


def _stamp(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise SandboxInfraError(f"cannot read the tar file {path}: {error}") from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _patch(old: Sequence[tuple[str, str, bytes]], new: Sequence[tuple[str, str, bytes]]) -> bytes:
    """git's difference of two trees, each given as path, mode and content."""
    with tempfile.TemporaryDirectory(prefix="selfplay-diff-") as name:
        folder = Path(name)
        # note: what `git init` writes, without its templates and its process.
        (folder / "objects").mkdir()
        (folder / "refs").mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
        (folder / "config").write_text("[core]\nrepositoryformatversion = 0\nbare = true\n", encoding="utf-8")
        (folder / "info").mkdir()
        (folder / "info" / "attributes").write_bytes(_attributes([*old, *new]))
        _git(folder, ["fast-import", "--quiet", "--done"], _commit("old", old) + _commit("new", new) + b"done\n")
        plain = ["--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"]
        shape = ["--binary", "--full-index", "--unified=3", "--diff-algorithm=myers"]
        patch = _git(folder, ["diff-tree", "-r", "-p", *plain, *shape, "refs/heads/old", "refs/heads/new"], b"")
    # note: git writes names with blanks bare, and `git apply` does not understand some of its own then.
    return re.sub(rb"^diff --git a/(.* .*) b/\1$", rb'diff --git "a/\1" "b/\1"', patch, flags=re.MULTILINE)


def _attributes(files: Iterable[tuple[str, str, bytes]]) -> bytes:
    """Large files are shown as binary: text of few, repeated lines takes git minutes, and is no source."""
    large = {path for path, _, content in files if len(content) > TEXT_BYTES}
    patterns = (re.sub(rb"([*?\[\\])", rb"\\\1", b"/" + os.fsencode(path)) for path in sorted(large))
    return b"".join(b'"%s" -diff\n' % _quoted(pattern) for pattern in patterns)


def _quoted(name: bytes) -> bytes:
    # note: octal escapes throughout: a name holds whatever bytes it likes.
    return "".join(f"\\{byte:03o}" for byte in name).encode()


def _commit(name: str, files: Sequence[tuple[str, str, bytes]]) -> bytes:
    """A branch that holds `files`, as `git fast-import` reads it."""
    parts = [f"commit refs/heads/{name}\ncommitter - <-> 0 +0000\ndata 0\n".encode()]
    for path, mode, content in files:
        head = b'M %s inline "%s"\ndata %d\n' % (mode.encode(), _quoted(os.fsencode(path)), len(content))
        parts += [head, content, b"\n"]
    return b"".join(parts)


def _git(folder: Path, words: Sequence[str], stdin: bytes) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise SandboxInfraError("a difference needs `git` on this machine", hint="apt-get install -y git")
    options = {
        "core.attributesFile": os.devnull,
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        # Such names were dropped before; an overlooked one is no failure of ours.
        "core.protectHFS": "false",
        "core.protectNTFS": "false",
        "core.compression": "0",
        "fastimport.unpackLimit": "1",
    }
    argv = [git, *(word for key, value in options.items() for word in ("-c", f"{key}={value}")), *words]
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": str(folder),
        "GIT_DIR": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
    }
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, env=env, cwd=folder, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxInfraError(f"git failed at a difference: {error}") from error
    if done.returncode != 0:
        raise SandboxInfraError(f"git failed at a difference: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return done.stdout


def _seekable(tree: bytes | IO[bytes]) -> IO[bytes]:
    """`tree` as a file that can be sought in; a pipe is copied into an unnamed file first."""
    if isinstance(tree, bytes):
        return io.BytesIO(tree)
    if tree.seekable():
        return tree
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(tree, copy)
    return copy
