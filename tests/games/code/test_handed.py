"""The tree that a solver with a shell gets, taken apart."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.games.code import clean
from selfplay.games.code.handed import GivesAway, assert_gives_nothing_away, handed, solver_tree
from selfplay.games.code.source import Repository, fetch
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from tests.games.code.conftest import PACKAGE, write

CLEAN = "total = a + b"
TEST = "tests/test_core.py"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = write(tmp_path_factory.mktemp("handed") / "pkg-1.0", PACKAGE)
    return fetch(str(folder), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def files(repository: Repository) -> dict[str, bytes | None]:
    """A bug, a weakening, and a file that is gone."""
    return {
        "pkg/core.py": repository.read("pkg/core.py").replace(CLEAN, "total = a - b").encode(),
        TEST: repository.read(TEST).replace("assert core.add(a, b) == a + b", "core.add(a, b)").encode(),
        "tests/conftest.py": None,
    }


@pytest.fixture
def tree(repository: Repository, files: dict[str, bytes | None], tmp_path: Path) -> tuple[Path, str]:
    """The tar, and its commit."""
    path = tmp_path / "solver.tar"
    return path, solver_tree(repository, files=files, path=path)


def unpacked(path: Path, folder: Path) -> Path:
    # note: Debian 12's own Python, 3.11.2, has no filters; later ones want one to be named.
    how = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as packed:
        packed.extractall(folder, **how)  # type: ignore[arg-type]
    return folder


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_it_is_one_commit_of_the_buggy_code(tree: tuple[Path, str], tmp_path: Path) -> None:
    folder = unpacked(tree[0], tmp_path / "out")
    assert "total = a - b" in (folder / "pkg/core.py").read_text()
    assert not (folder / "tests/conftest.py").exists()
    assert git(folder, "rev-list", "--all") == tree[1]
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "fsck", "--unreachable", "--no-reflogs", "--strict") == ""
    assert git(folder, "log", "-p", "--all").count(CLEAN) == 0
    assert not (folder / ".git/logs").exists()
    assert not (folder / ".git/hooks").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "solver.tar"]


def test_equal_files_give_an_equal_commit(
    tree: tuple[Path, str], repository: Repository, files: dict[str, bytes | None], tmp_path: Path
) -> None:
    assert solver_tree(repository, files=files, path=tmp_path / "again.tar") == tree[1]
    assert solver_tree(repository, files={}, path=tmp_path / "clean.tar") != tree[1]


def test_a_copy_of_the_clean_file_is_found(
    repository: Repository, files: dict[str, bytes | None], tmp_path: Path
) -> None:
    copied = {**files, "docs/example.txt": repository.read("pkg/core.py").encode()}
    with pytest.raises(GivesAway, match=r"docs/example\.txt is the clean text of pkg/core\.py"):
        solver_tree(repository, files=copied, path=tmp_path / "solver.tar")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("pkg/__pycache__/a.pyc", "bytecode"),
        ("build/lib.py", "build product"),
        ("p.egg-info/PKG-INFO", "build product"),
        (".pytest_cache/x", "cache"),
        (".git/hooks/pre-commit", "more than a"),
        (".git/logs/HEAD", "more than a"),
        (".git/refs/heads/old", "more than a"),
        (".git/packed-refs", "more than a"),
        (".git/objects/info/alternates", "no loose object"),
    ],
)
def test_what_gives_something_away_is_found(
    repository: Repository,
    files: dict[str, bytes | None],
    tree: tuple[Path, str],
    tmp_path: Path,
    path: str,
    said: str,
) -> None:
    folder = unpacked(tree[0], tmp_path / "out")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("x")
    with pytest.raises(GivesAway, match=said):
        looked_at(folder, tmp_path, repository, files, tree[1])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "link").symlink_to("/etc/passwd"), "link is no plain file"),
        (lambda folder: git(folder, "config", "remote.origin.url", "x"), "names a remote"),
        (lambda folder: git(folder, "hash-object", "-w", "/etc/hostname"), "not of the one commit"),
        (lambda folder: (folder / ".git/HEAD").write_text("ref: refs/heads/old"), "HEAD is not"),
        (lambda folder: (folder / ".git/refs/heads/main").write_text("0" * 40), "is not the one commit"),
    ],
)
def test_a_repository_of_more_than_the_commit_is_found(
    repository: Repository,
    files: dict[str, bytes | None],
    tree: tuple[Path, str],
    tmp_path: Path,
    spoil: Callable[[Path], object],
    said: str,
) -> None:
    folder = unpacked(tree[0], tmp_path / "out")
    spoil(folder)
    with pytest.raises(GivesAway, match=said):
        looked_at(folder, tmp_path, repository, files, tree[1])


def test_the_clean_file_among_the_objects_is_found(
    repository: Repository, files: dict[str, bytes | None], tree: tuple[Path, str], tmp_path: Path
) -> None:
    folder = unpacked(tree[0], tmp_path / "out")
    git(folder, "hash-object", "-w", str(repository.root / "pkg/core.py"))
    with pytest.raises(GivesAway, match=r"is the clean text of pkg/core\.py"):
        looked_at(folder, tmp_path, repository, files, tree[1])


def test_a_second_commit_is_found(
    repository: Repository, files: dict[str, bytes | None], tree: tuple[Path, str], tmp_path: Path
) -> None:
    folder = unpacked(tree[0], tmp_path / "out")
    who = ("-c", "user.name=a", "-c", "user.email=a@a")
    second = git(folder, *who, "commit-tree", "HEAD^{tree}", "-p", tree[1], "-m", "two")
    (folder / ".git/refs/heads/main").write_text(second + "\n")
    with pytest.raises(GivesAway, match="the commit has a parent"):
        looked_at(folder, tmp_path, repository, files, second)


def looked_at(
    folder: Path, tmp_path: Path, repository: Repository, files: dict[str, bytes | None], commit: str
) -> None:
    archive = tmp_path / "spoilt.tar"
    with tarfile.open(archive, "w") as packed:
        for path in sorted(p for p in folder.rglob("*") if p.is_symlink() or p.is_file()):
            packed.add(path, path.relative_to(folder).as_posix())
    assert_gives_nothing_away(archive, repository=repository, files=files, commit=commit)


@pytest.mark.bubblewrap
def test_a_sandbox_of_it_holds_no_clean_copy(
    bubblewrap: None, repository: Repository, tree: tuple[Path, str], tmp_path: Path
) -> None:
    async def main(archive: Path) -> None:
        provider = BubblewrapProvider()
        try:
            spec = SandboxSpec(name="python")
            await clean.check(provider, spec=spec, archive=archive, repository=repository, roots=("",))
        finally:
            await provider.aclose()

    asyncio.run(main(tree[0]))
    spoilt = tmp_path / "spoilt.tar"
    spoilt.write_bytes(tree[0].read_bytes())
    with tarfile.open(spoilt, "a") as packed:
        entry = tarfile.TarInfo("pkg/__pycache__/core.cpython-311.pyc")
        entry.size = 4
        packed.addfile(entry, io.BytesIO(b"code"))
    with pytest.raises(NotReady, match="bytecode of the package"):
        asyncio.run(main(spoilt))


def test_threads_make_trees_at_once_and_the_process_stays_where_it_is(
    repository: Repository, files: dict[str, bytes | None], tmp_path: Path
) -> None:
    here, seen, done = Path.cwd(), set(), threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(Path.cwd())

    def make(number: int) -> tuple[Path, bytes]:
        laid = {**files, "pkg/core.py": f"x = {number % 3}\n".encode()}
        made = handed(repository, files=laid, cache=tmp_path)
        return made.archive, made.archive.read_bytes()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            made = list(pool.map(make, range(6)))
    finally:
        done.set()
        watcher.join()
    assert seen == {here}
    assert len({path for path, _ in made}) == 3
    assert len({body for _, body in made}) == 3, "equal files, equal trees"
    assert [path for path in (tmp_path / "handed").iterdir() if path.suffix != ".tar"] == []
