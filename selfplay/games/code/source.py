"""Brings a repository to this machine: a folder, a git URL or `pypi:NAME==VERSION`, without running anything of it.

What is covered: reading the files, leaving out what is not source (version control, caches, build products), one commit
in a fresh git repository with a fixed author and date (equal files give an equal commit id), and a tar archive for
sandboxes. Everything lies in the cache by digest of the files, written aside and renamed. A package version and a git
URL are fetched once; a folder is read each time.

What is not covered: building, submodules, large-file storage, symbolic links (left out), and whether the tests run.

Example:
    >>> fetch("pypi:toolz==1.2.0", cache=Path("~/.cache/selfplay").expanduser()).name  # doctest: +SKIP
    'toolz-1.2.0'
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from selfplay.errors import NotFound, NotReady, SelfplayError, UserError
from selfplay.games.code import index
from selfplay.types import digest, record

MAX_BYTES = 200 << 20
"""Largest tree, in bytes."""
MAX_FILES = 20_000

_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", ".bzr", ".tox", ".nox", ".venv", ".eggs", ".idea", ".vscode", ".cache", "node_modules"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "__pycache__", "__pypackages__"}
)
_LEFT_OUT_AT_TOP = frozenset({"build", "dist", "venv", "env"})
_LEFT_OUT_SUFFIXES = (".pyc", ".pyo", ".egg-info", ".dist-info", ".orig", ".rej", ".whl", ".egg")
_FORMAT = 1
"""Changes whenever equal input would be stored differently, so that older cache entries are not used."""
WHO = "selfplay"
WHEN = "946684800 +0000"


@record
class Repository:
    """One tree of files, committed and packed."""

    name: str
    """For people: `toolz-1.2.0`."""
    source: str
    """What was asked for: `pypi:toolz==1.2.0`, a path, a URL."""
    digest: str
    """Of the paths and contents of its files."""
    commit: str
    """The one commit of the git repository in `root`."""
    root: Path
    """The working tree, read only by agreement."""
    archive: Path
    """An uncompressed tar of the tree, for `SandboxSpec.archive`."""
    files: tuple[str, ...]
    """Paths of its files, sorted."""

    def read(self, path: str) -> str:
        """The text of one file, line ends as they are.

        Raises:
            FileNotFoundError, UnicodeDecodeError: it is not there, or not UTF-8.
        """
        return (self.root / path).read_bytes().decode()


def fetch(source: str, *, cache: Path) -> Repository:
    """The repository that `source` names, ready under `cache`.

    Raises:
        NotFound: no such folder, package, version or remote repository.
        UserError: it has no Python, no tests, or is too large.
        NotReady: no network, no git, no space left.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        kept = None if is_folder(source) else _kept(source, cache)
        return kept or _store(_files(source), source=source, cache=cache)
    except OSError as error:
        raise _not_written(error, cache) from error


def digest_of(hashes: Mapping[str, str]) -> str:
    """The digest of a tree: path -> sha256 of its content, in hexadecimal."""
    return digest("tree", _FORMAT, sorted(hashes.items()))


def is_test(path: str) -> bool:
    """True where a file belongs to the tests rather than to the package."""
    parts = PurePosixPath(path)
    if any(part in ("test", "tests", "testing") for part in parts.parts[:-1]):
        return True
    return parts.name == "conftest.py" or bool(re.fullmatch(r"test_.*\.py|.*_test\.py|tests?\.py", parts.name))


def is_folder(source: str) -> bool:
    """True where a source is a folder of this machine."""
    return not source.startswith("pypi:") and not is_git(source)


def is_git(source: str) -> bool:
    """True where a source is a remote git repository."""
    return source.startswith(("git+", "git@", "http://", "https://", "ssh://", "git://", "file://"))


def _files(source: str) -> tuple[str, dict[str, bytes]]:
    """Name and files of a source."""
    if source.startswith("pypi:"):
        return _from_index(source)
    if is_git(source):
        return _from_git(source)
    folder = Path(source).expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise NotFound(
            f"the repository `{source}` {what}", hint="give a folder, a git URL, or pypi:NAME==VERSION as game.source"
        )
    return folder.resolve().name, _from_folder(folder.resolve())


def _from_index(source: str) -> tuple[str, dict[str, bytes]]:
    wanted = re.fullmatch(r"pypi:([A-Za-z0-9._-]+)==([A-Za-z0-9.+!_-]+)", source.replace(" ", ""))
    if wanted is None:
        raise UserError(
            f"`{source}` does not name one version of a package",
            hint="write pypi:NAME==VERSION; versions: pip index versions NAME",
        )
    places = index.configured()
    archive = index.find_sdist(wanted[1], version=wanted[2], places=places)
    content = index.download(archive, places=places)
    try:
        return f"{wanted[1]}-{wanted[2]}", dict(_unpacked(content, filename=archive.filename))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise UserError(f"{archive.filename} is not a source archive that can be read: {error}") from error


def _unpacked(content: bytes, *, filename: str) -> Iterator[tuple[str, bytes]]:
    """The regular files of an archive, without its one outer folder. Links and devices are never made."""
    if filename.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            yield from _accepted((e.filename, e.file_size, packed.open(e)) for e in packed.infolist() if not e.is_dir())
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        yield from _accepted((m.name, m.size, opened.extractfile(m)) for m in opened if m.isreg())


def _accepted(members: Iterator[tuple[str, int, object]]) -> Iterator[tuple[str, bytes]]:
    size = 0
    for name, length, stream in members:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or len(path.parts) < 2:
            continue
        inner = PurePosixPath(*path.parts[1:])
        size += length
        if size > MAX_BYTES:
            raise UserError(f"the source archive unpacks to more than {MAX_BYTES >> 20} MiB")
        assert isinstance(stream, io.BufferedIOBase)
        if is_kept(inner):
            yield inner.as_posix(), stream.read(length)


def _from_git(source: str) -> tuple[str, dict[str, bytes]]:
    """The newest commit of a remote repository, or of the branch or tag after the last `@`."""
    git = the_git()
    url, branch = remote_of(source)
    with tempfile.TemporaryDirectory(prefix="selfplay-clone-") as folder:
        environment = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
        options = {"branch": branch} if branch else {}
        try:
            git.Repo.clone_from(url, folder, depth=1, env=environment, **options).close()
        except git.GitCommandError as error:
            raise _not_cloned(source, str(error.stderr)) from error
        return url.rpartition("/")[2].removesuffix(".git"), _from_folder(Path(folder))


def remote_of(source: str) -> tuple[str, str]:
    """The URL of a remote repository, and the branch or tag after the last `@`; empty where it names none."""
    url = source.removeprefix("git+")
    head, _, tail = url.rpartition("/")
    last, _, branch = tail.partition("@") if head else (tail, "", "")
    return (f"{head}/{last}" if head else last), branch


def _not_cloned(source: str, stderr: str) -> SelfplayError:
    lines = [line.strip() for line in stderr.strip().strip("'").splitlines() if "fatal:" in line]
    said = (lines or ["git gave no reason"])[-1].removeprefix("fatal: ")[:200]
    if re.search(r"resolve host|unable to access|timed out|Connection|Network", said):
        return NotReady(f"`{source}` could not be cloned: {said}", hint="check the network, or give a folder instead")
    return NotFound(f"`{source}` could not be cloned: {said}", hint="check the URL: git ls-remote URL")


def _from_folder(root: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    size = 0
    for folder, names, leaves in os.walk(root):
        inner = PurePosixPath(Path(folder).relative_to(root).as_posix())
        names[:] = sorted(n for n in names if is_kept(inner / n) and not _is_made(Path(folder, n)))
        for leaf in sorted(leaves):
            path = Path(folder, leaf)
            if not is_kept(inner / leaf) or path.is_symlink() or not path.is_file():
                continue
            size += path.stat().st_size
            if size > MAX_BYTES or len(files) >= MAX_FILES:
                raise UserError(
                    f"`{root}` has more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files",
                    hint="give the folder of one package with its tests",
                )
            files[(inner / leaf).as_posix()] = path.read_bytes()
    return files


def _is_made(folder: Path) -> bool:
    """Is it an environment, or a run, which grows while its own folder is the source?"""
    return any((folder / name).exists() for name in ("pyvenv.cfg", "conda-meta", "ledger.db"))


def is_kept(path: PurePosixPath) -> bool:
    """False for version control, caches, environments, bytecode and build products."""
    if any(part in _LEFT_OUT or part.endswith(_LEFT_OUT_SUFFIXES) for part in path.parts):
        return False
    # note: a name that UTF-8 cannot hold can be neither recorded nor packed the same way everywhere.
    return path.parts[0] not in _LEFT_OUT_AT_TOP and path.as_posix().isprintable()


def _store(found: tuple[str, dict[str, bytes]], *, source: str, cache: Path) -> Repository:
    """Write the files, the commit, the archive and the description aside, then rename."""
    name, files = found
    _check(files, source)
    tree = digest_of({path: hashlib.sha256(body).hexdigest() for path, body in files.items()})
    folder = cache / "repositories" / tree
    if not (folder / "repository.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".aside-", dir=folder.parent))
        try:
            commit = committed(files, aside / "tree")
            pack(files, aside / "tree.tar")
            described = {"commit": commit, "files": sorted(files)}
            (aside / "repository.json").write_text(json.dumps(described))
            _rename(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    if not is_folder(source):
        pointer = cache / "sources" / f"{digest(source, _FORMAT)}.json"
        pointer.parent.mkdir(parents=True, exist_ok=True)
        aside_pointer = pointer.with_suffix(f".{os.getpid()}")
        aside_pointer.write_text(json.dumps({"source": source, "name": name, "digest": tree}))
        aside_pointer.replace(pointer)
    return _load(folder, name=name, source=source)


def _rename(aside: Path, folder: Path) -> None:
    try:
        aside.rename(folder)
    except OSError as error:
        # note: another process may have stored the same tree meanwhile; equal digests are equal trees.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (folder / "repository.json").is_file():
            raise


def _kept(source: str, cache: Path) -> Repository | None:
    """What an earlier fetch of the same version left, or None."""
    pointer = cache / "sources" / f"{digest(source, _FORMAT)}.json"
    try:
        known = json.loads(pointer.read_text())
        return _load(cache / "repositories" / known["digest"], name=known["name"], source=source)
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _load(folder: Path, *, name: str, source: str) -> Repository:
    described = json.loads((folder / "repository.json").read_text())
    return Repository(
        name=name,
        source=source,
        digest=folder.name,
        commit=described["commit"],
        root=folder / "tree",
        archive=folder / "tree.tar",
        files=tuple(described["files"]),
    )


def _check(files: Mapping[str, bytes], source: str) -> None:
    python = [path for path in files if path.endswith(".py")]
    if not any(not is_test(path) and path != "setup.py" for path in python):
        raise UserError(f"`{source}` has no Python source to play with", hint="give a Python package with its tests")
    if not any(is_test(path) for path in python):
        raise UserError(
            f"`{source}` has no tests (no test_*.py, *_test.py or tests folder), and a bug is proved by a failing test",
            hint="give a repository with a pytest suite; some packages leave it out of the sdist: try their git URL",
        )


def committed(files: Mapping[str, bytes], tree: Path) -> str:
    """Write `files` under `tree` and commit them once; the commit id depends on nothing but the files."""
    git = the_git()
    tree.mkdir()
    for path, body in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
    with git.Repo.init(tree, initial_branch="main") as repository:
        stage(repository, files)
        who = git.Actor(WHO, "")
        commit = repository.index.commit(
            "The tree as it was fetched",
            author=who,
            committer=who,
            author_date=WHEN,
            commit_date=WHEN,
            skip_hooks=True,
        )
        return str(commit.hexsha)


def stage(repository: Any, files: Mapping[str, bytes]) -> None:
    """Put `files` into the index of a git repository as they are: no filter, no line ends changed."""
    from git.index.typ import BaseIndexEntry
    from gitdb.base import IStream  # type: ignore[import-untyped]

    # note: for paths the library changes the folder of the whole process while it reads them, for entries it does not.
    entries = []
    for path, body in sorted(files.items()):
        stored = repository.odb.store(IStream(b"blob", len(body), io.BytesIO(body)))
        entries.append(BaseIndexEntry((0o100644, stored.binsha, 0, path)))
    repository.index.add(entries)


def pack(files: Mapping[str, bytes], archive: Path) -> None:
    """A tar of `files` that depends on nothing else: sorted, no owner, no clock."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            packed.addfile(entry, io.BytesIO(files[path]))


def the_git() -> ModuleType:
    """GitPython, which cannot be imported where git itself is missing."""
    try:
        import git
    except ImportError as error:
        raise NotReady("git is not installed", hint="apt-get install -y git") from error
    return git


def _not_written(error: OSError, cache: Path) -> SelfplayError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NotReady(f"no space left under {cache}", hint="free some space, or set SELFPLAY_CACHE to another disk")
    return NotReady(f"{error.filename or cache}: {error.strerror or error}", hint="check the path and its permissions")
