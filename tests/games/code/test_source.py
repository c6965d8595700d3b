"""Folders, git URLs and package versions become one committed tree, or one sentence that says why not."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import git
import pytest

from selfplay.errors import NotFound, NotReady, SelfplayError, UserError
from selfplay.games.code import index, source

FILES = {"pkg/a.py": b"A = 1\n", "tests/test_a.py": b"import pkg\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "pkg-1.0", FILES)


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def sdist(files: dict[str, bytes], *, extra: Callable[[tarfile.TarFile], None] = lambda packed: None) -> bytes:
    """A tar.gz of `files` in a folder of their own."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for path, body in files.items():
            entry = tarfile.TarInfo(f"pkg-1.0/{path}")
            entry.size = len(body)
            packed.addfile(entry, io.BytesIO(body))
        extra(packed)
    return content.getvalue()


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts one file on a local index and has pip configured for it."""

    def offer(content: bytes, filename: str = "pkg-1.0.tar.gz") -> None:
        page = tmp_path / "simple" / "pkg"
        page.mkdir(parents=True, exist_ok=True)
        (page / filename).write_bytes(content)
        (page / "index.html").write_text(f'<a href="{filename}">{filename}</a>')

    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return offer


def test_a_folder_is_copied_without_what_is_not_source(folder: Path, tmp_path: Path) -> None:
    fill(folder, {".git/config": b"x", "pkg/__pycache__/a.pyc": b"x", "build/lib/a.py": b"x", "x.egg-info/P": b"x"})
    fill(folder, {"venv/pyvenv.cfg": b"x", "pkg/build/keep.py": b"x", ".tox/a.py": b"x", "my-env/pyvenv.cfg": b""})
    (folder / "link.py").symlink_to("/etc/passwd")
    repository = source.fetch(str(folder), cache=tmp_path / "cache")
    assert repository.files == ("pkg/a.py", "pkg/build/keep.py", "tests/test_a.py")
    assert repository.name == "pkg-1.0"
    with tarfile.open(repository.archive) as packed:
        assert next((e.name, e.mtime, e.mode, e.uid) for e in packed) == ("pkg/a.py", 0, 0o644, 0)


def test_equal_trees_give_equal_commits_and_archives(folder: Path, tmp_path: Path) -> None:
    first = source.fetch(str(folder), cache=tmp_path / "one")
    second = source.fetch(str(folder), cache=tmp_path / "two")
    assert (first.digest, first.commit) == (second.digest, second.commit)
    assert first.archive.read_bytes() == second.archive.read_bytes()
    (folder / "pkg/a.py").write_bytes(b"A = 2\n")
    assert source.fetch(str(folder), cache=tmp_path / "one").digest != first.digest
    with git.Repo(first.root) as repository:
        assert not repository.is_dirty(untracked_files=True)
        assert [c.message for c in repository.iter_commits()] == ["The tree as it was fetched"]


def test_a_package_version_is_fetched_once(configured: Callable[[bytes], None], tmp_path: Path) -> None:
    configured(sdist(FILES))
    repository = source.fetch("pypi:pkg==1.0", cache=tmp_path / "cache")
    assert repository.files == tuple(sorted(FILES))
    configured(b"something else")
    assert source.fetch("pypi:pkg==1.0", cache=tmp_path / "cache") == repository


def test_an_archive_cannot_reach_outside_or_make_links(configured: Callable[[bytes], None], tmp_path: Path) -> None:
    def extra(packed: tarfile.TarFile) -> None:
        for name, kind in (("pkg-1.0/../../out.py", tarfile.REGTYPE), ("/abs/x.py", tarfile.REGTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type = kind
            packed.addfile(entry, io.BytesIO())
        link = tarfile.TarInfo("pkg-1.0/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)

    configured(sdist(FILES, extra=extra))
    assert source.fetch("pypi:pkg==1.0", cache=tmp_path / "cache").files == tuple(sorted(FILES))
    assert not (tmp_path / "out.py").exists()


def test_set_up_code_is_not_run(configured: Callable[[bytes], None], tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    configured(sdist({**FILES, "setup.py": trap}))
    source.fetch("pypi:pkg==1.0", cache=tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


def test_a_git_url_is_cloned(folder: Path, tmp_path: Path) -> None:
    with git.Repo.init(folder) as repository:
        repository.index.add(sorted(FILES))
        repository.index.commit("one", skip_hooks=True)
    cloned = source.fetch(f"git+{folder.as_uri()}", cache=tmp_path / "cache")
    assert cloned.digest == source.fetch(str(folder), cache=tmp_path / "cache").digest
    with pytest.raises(NotFound, match="could not be cloned"):
        source.fetch(f"{folder.as_uri()}-not", cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("tests only", {"test_a.py": b"", "setup.py": b""}, "no Python source"),
        ("no Python", {"README": b"words"}, "no Python source"),
        ("no tests", {"a.py": b""}, "no tests"),
    ],
)
def test_a_repository_that_cannot_be_played_is_refused(
    tmp_path: Path, name: str, files: dict[str, bytes], said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        source.fetch(str(fill(tmp_path / "bad", files)), cache=tmp_path / "cache")
    assert caught.value.hint
    assert not list((tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ("/nowhere/at/all", NotFound, "does not exist"),
        ("pypi:pkg", UserError, "does not name one version"),
        ("pypi:pkg==2.0", NotFound, "no version 2.0 of `pkg`"),
        ("pypi:other==1.0", NotFound, "no package `other`"),
        ("pypi:pkg==1.0", UserError, "not a source archive"),
    ],
)
def test_what_cannot_be_fetched_is_said_in_one_sentence(
    configured: Callable[[bytes], None], tmp_path: Path, asked: str, kind: type[SelfplayError], said: str
) -> None:
    configured(b"not an archive")
    with pytest.raises(kind, match=said) as caught:
        source.fetch(asked, cache=tmp_path / "cache")
    assert caught.value.hint or kind is UserError
    assert not list((tmp_path / "cache").rglob("*"))


def test_only_wheels(configured: Callable[..., None], tmp_path: Path) -> None:
    configured(b"", "pkg-1.0-py3-none-any.whl")
    with pytest.raises(UserError, match="no source distribution"):
        source.fetch("pypi:pkg==1.0", cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_not_ready(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReady):
        source.fetch(str(folder), cache=tmp_path / "file" / "cache")


def test_no_network_is_not_ready(tmp_path: Path) -> None:
    places = index.Places(indexes=("http://127.0.0.1:9/simple",), links=())
    with pytest.raises(NotReady, match="no package index could be asked"):
        index.find_sdist("pkg", version="1.0", places=places)


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        ("tests/helper.py", True),
        ("pkg/tests/test_a.py", True),
        ("pkg/a_test.py", True),
        ("conftest.py", True),
        ("pkg/latest.py", False),
        ("pkg/contest.py", False),
    ],
)
def test_what_belongs_to_the_tests(path: str, belongs: bool) -> None:
    assert source.is_test(path) is belongs
