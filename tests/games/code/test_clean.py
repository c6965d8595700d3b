"""Clean copies are planted where a solver could read them, and found."""

from __future__ import annotations

import asyncio
import io
import py_compile
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from selfplay.cache import cache_folder
from selfplay.errors import NotReady
from selfplay.games.code import clean
from selfplay.games.code.source import Repository, fetch
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.wheels import Wheel

pytestmark = pytest.mark.bubblewrap
Look = Callable[..., None]

CORE = "def add(a, b):\n    total = a + b\n    return total\n\n\n" + "TABLE = [1, 2, 3]\n" * 10


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    files = {"cleanpkg/__init__.py": "", "cleanpkg/core.py": CORE, "tests/test_core.py": "import cleanpkg\n"}
    for path, text in files.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_text(text)
    return fetch(str(tmp_path / "tree"), cache=tmp_path / "cache")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all of these tests, so that the environment is made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def look(
    bubblewrap: None, repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Look:
    """`look(wheel={...}, archive={...})`: the check, with these files in a wheel or in the archive."""
    monkeypatch.setenv("SELFPLAY_CACHE", str(cache))

    def run(*, wheel: Mapping[str, bytes] | None = None, archive: Mapping[str, bytes] | None = None) -> None:
        wheels = [stored(wheel)] if wheel else []
        packed = tmp_path / "packed.tar"
        with tarfile.open(repository.archive) as tree, tarfile.open(packed, "w") as tar:
            for entry in tree:
                tar.addfile(entry, tree.extractfile(entry))
            for path, content in (archive or {}).items():
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))

        async def main() -> None:
            provider = BubblewrapProvider(environment=tool_environment(wheels=wheels))
            sandbox = await provider.create(SandboxSpec(name="python", archive=str(packed)))
            try:
                # note: the machine's own folders, a second or more, only where something was planted there.
                await clean.assert_no_clean_copy(
                    sandbox, python=provider.python, repository=repository, roots=("",), everywhere=bool(wheels)
                )
            finally:
                await provider.aclose()

        asyncio.run(main())

    return run


def stored(files: Mapping[str, bytes]) -> Wheel:
    """A wheel of these files, in the cache."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path, body in files.items():
            packed.writestr(path, body)
    pin = sha256(content.getvalue()).hexdigest()
    wheel = Wheel(name="planted", version="1.0", filename="planted-1.0-py3-none-any.whl", sha256=pin)
    wheel.path.parent.mkdir(parents=True, exist_ok=True)
    wheel.path.write_bytes(content.getvalue())
    assert wheel.path.is_relative_to(cache_folder())
    return wheel


def bytecode(folder: Path, text: str) -> bytes:
    (folder / "module.py").write_text(text)
    return Path(py_compile.compile(str(folder / "module.py"), cfile=str(folder / "module.pyc"))).read_bytes()


def test_a_sandbox_without_copies_is_clean(look: Look, tmp_path: Path) -> None:
    tests = {
        "tests/__pycache__/test_core.cpython-311-pytest-9.0.0.pyc": b"test",
        "tests/__pycache__/t-pytest-.pyc": b"",
    }
    other = {"other/core.py": b"# as long as the module\n" + b"#" * (len(CORE) - 24), "other/__init__.py": b""}
    changed = bytecode(tmp_path, CORE.replace("a + b", "a - b"))
    look(wheel={**other, "hidden/core.pyc": changed}, archive={**tests, "notes.pyc.txt": b"no bytecode"})


@pytest.mark.parametrize(
    ("wheel", "said"),
    [
        ({"cleanpkg/__init__.py": b"VERSION = 0\n"}, r"`cleanpkg` is installed at /.*/cleanpkg/__init__.py"),
        ({"vendored/_copies/core.py": CORE.encode()}, r"/vendored/_copies/core.py is a copy of a module"),
    ],
)
def test_a_copy_in_the_environment_is_found(look: Look, wheel: dict[str, bytes], said: str) -> None:
    with pytest.raises(NotReady, match=said) as caught:
        look(wheel=wheel)
    assert "could read the answer" in caught.value.message
    assert caught.value.hint


def test_bytecode_in_the_archive_is_found(look: Look, tmp_path: Path) -> None:
    code = bytecode(tmp_path, CORE)
    for path in ("cleanpkg/__pycache__/core.cpython-311.pyc", "cleanpkg/core.pyc", "old/__pycache__/gone.pyc"):
        with pytest.raises(NotReady, match=f"{path} in the work tree is bytecode"):
            look(archive={path: code})


def test_bytecode_elsewhere_is_known_by_what_it_does(look: Look, tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"/hidden/core.pyc is bytecode of a module"):
        look(wheel={"hidden/core.pyc": bytecode(tmp_path, CORE)})
