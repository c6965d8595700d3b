"""The tree that a solver with a shell is handed: one commit of the buggy code, and nothing that gives the answer away.

What is covered: a tar of the clean files with a bug and a weakening laid over them, in a git repository of one commit
made for it (fixed author and date: equal files, equal commit), and the look at the finished tar: no bytecode, caches,
build products or installed copies, no second commit, no object that the commit does not hold, no clean text of a
changed file, no hooks, reflogs, remotes or alternates; and both tars of such a tree kept by content (`handed`). That
nothing is to be had elsewhere in the sandbox is `clean.assert_no_clean_copy`'s, which takes this tar as any other.

What is not covered: playing with it (the single-turn form shows the function only), and clean text that other files
repeat: a vendored copy, documentation.

Example:
    >>> solver_tree(repository, files={"pkg/a.py": b"..."}, path=Path("solver.tar"))  # doctest: +SKIP
    '1c0f8a...'
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from selfplay.games.code.artifact import Files
from selfplay.games.code.clean import SMALL
from selfplay.games.code.source import Repository, committed, is_kept
from selfplay.types import digest, record

_GIT = frozenset({".git/HEAD", ".git/config", ".git/index", ".git/refs/heads/main"})
"""What a repository of one commit needs, beside its objects."""


_FORMAT = 1
"""Changes whenever equal files would make another tree."""


@record
class Handed:
    """A tree for a player with a shell."""

    archive: Path
    """Its tar, with a git repository of one commit: what a sandbox is made of."""
    base: Path
    """The tar of its files alone: what the player's work tree is compared with (`Sandbox.diff`)."""


class GivesAway(AssertionError):
    """The tree would show a solver what it must find; the message names the path."""


def handed(repository: Repository, *, files: Files, cache: Path) -> Handed:
    """The clean tree with `files` laid over it, under `cache`; made once for equal ones.

    Raises:
        GivesAway, NotReady: as `solver_tree`.
    """
    told = {path: None if body is None else hashlib.sha256(body).hexdigest() for path, body in files.items()}
    name = digest("handed", _FORMAT, repository.digest, sorted(told.items()))
    made = Handed(archive=cache / "handed" / f"{name}.tar", base=cache / "handed" / f"{name}.base.tar")
    if not (made.archive.is_file() and made.base.is_file()):
        made.base.parent.mkdir(parents=True, exist_ok=True)
        aside = made.base.with_suffix(_own())
        _pack(_laid_over(repository, files), aside)
        aside.replace(made.base)
        solver_tree(repository, files=files, path=made.archive)
    return made


def solver_tree(repository: Repository, *, files: Files, path: Path) -> str:
    """Write the tar at `path`, whole or not at all; the id of its one commit.

    `files` are the bug's and the weakening's files. The tar is looked at before it is put in its place.

    Raises:
        GivesAway: the finished tree shows clean code of a changed file, or holds what no solver needs.
        NotReady: git is not there.
    """
    kept = _laid_over(repository, files)
    aside = path.with_suffix(_own())
    with tempfile.TemporaryDirectory(prefix="selfplay-handed-") as folder:
        commit = committed(kept, Path(folder, "tree"))
        git = {name: Path(folder, "tree", name).read_bytes() for name in _needed(Path(folder, "tree"))}
    try:
        _pack({**kept, **git}, aside)
        assert_gives_nothing_away(aside, repository=repository, files=files, commit=commit)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return commit


def assert_gives_nothing_away(archive: Path, *, repository: Repository, files: Files, commit: str) -> None:
    """Look at a solver's tree in a tar, whoever made it.

    Raises:
        GivesAway: see `solver_tree`.
    """
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        odd = next((member.name for member in members if not member.isreg()), None)
        if odd is not None:
            raise GivesAway(f"{odd} is no plain file")
        contents = {member.name: _read(packed, member) for member in members}
    changed = [one for one, content in files.items() if one in repository.files]
    clean = {one: (repository.root / one).read_bytes() for one in changed}
    answers = {hashlib.sha256(content).digest(): one for one, content in clean.items() if len(content) >= SMALL}
    git = {name: content for name, content in contents.items() if name.startswith(".git/")}
    for name, content in contents.items():
        if name not in git and not is_kept(PurePosixPath(name)):
            raise GivesAway(f"{name} is bytecode, a cache or a build product")
        if name not in git and hashlib.sha256(content).digest() in answers:
            raise GivesAway(f"{name} is the clean text of {answers[hashlib.sha256(content).digest()]}")
    _assert_one_commit(git, answers=answers, commit=commit)


def _assert_one_commit(git: Mapping[str, bytes], *, answers: Mapping[bytes, str], commit: str) -> None:
    """The repository is one commit without parents, and its objects are those that it holds."""
    objects: dict[str, tuple[bytes, bytes]] = {}
    for name, content in git.items():
        if name.startswith(".git/objects/"):
            kind, body = _object(name, content)
            objects[name.removeprefix(".git/objects/").replace("/", "")] = kind, body
            if kind == b"blob" and hashlib.sha256(body).digest() in answers:
                raise GivesAway(f"{name} is the clean text of {answers[hashlib.sha256(body).digest()]}")
        elif name not in _GIT:
            raise GivesAway(f"{name} is more than a repository of one commit needs")
    if git.get(".git/HEAD", b"").strip() != b"ref: refs/heads/main":
        raise GivesAway("HEAD is not the branch with the one commit")
    if git.get(".git/refs/heads/main", b"").strip().decode(errors="replace") != commit:
        raise GivesAway("the branch is not the one commit")
    if b"[remote" in git.get(".git/config", b""):
        raise GivesAway(".git/config names a remote")
    if b"\nparent " in objects.get(commit, (b"", b""))[1]:
        raise GivesAway("the commit has a parent")
    stray = set(objects) - set(_reached(commit, objects))
    if stray or commit not in objects:
        raise GivesAway(f"git's object {min(stray or {commit})} is not of the one commit")


def _reached(name: str, objects: Mapping[str, tuple[bytes, bytes]]) -> Iterator[str]:
    """The objects that one holds, itself included."""
    kind, body = objects.get(name, (b"", b""))
    yield name
    if kind == b"commit":
        yield from _reached(body.split(b"\n", 1)[0].removeprefix(b"tree ").decode(), objects)
    while kind == b"tree" and body:
        head, _, rest = body.partition(b"\0")
        if head:
            yield from _reached(rest[:20].hex(), objects)
        body = rest[20:]


def _object(name: str, content: bytes) -> tuple[bytes, bytes]:
    """Kind and body of a loose object; a pack is refused, since nothing here makes one."""
    try:
        head, _, body = zlib.decompress(content).partition(b"\0")
        return head.split(b" ")[0], body
    except zlib.error as error:
        raise GivesAway(f"{name} is no loose object of git") from error


def _laid_over(repository: Repository, files: Files) -> dict[str, bytes]:
    tree = {one: (repository.root / one).read_bytes() for one in repository.files} | dict(files)
    return {one: content for one, content in tree.items() if content is not None}


def _own() -> str:
    """An ending that nobody else writes under at the same time, in this process or another."""
    return f".{os.getpid()}-{threading.get_ident()}"


def _needed(tree: Path) -> Iterator[str]:
    """What of a fresh repository goes along: no hooks, descriptions, reflogs."""
    for folder, _, names in os.walk(tree / ".git"):
        for name in names:
            path = Path(folder, name).relative_to(tree).as_posix()
            if path in _GIT or path.startswith(".git/objects/"):
                yield path


def _pack(files: Mapping[str, bytes], archive: Path) -> None:
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            packed.addfile(entry, io.BytesIO(files[path]))


def _read(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = packed.extractfile(member)
    assert file is not None
    return file.read()
