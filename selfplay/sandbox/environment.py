"""The interpreter and the distributions that judge a repository: a small, read-only virtual environment.

It holds pytest, pytest-json-report, coverage and what they need, copied from the engine's own installation
(no network), the pinned wheels of what the repository requires, and nothing else; it lies in the cache under a
digest of names, versions and wheels, made once.

Not covered: how a backend brings it into a sandbox, which wheels those are (`wheels`).
"""

from __future__ import annotations

import compileall
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from selfplay.cache import cache_folder
from selfplay.errors import NotReady
from selfplay.sandbox.wheels import Wheel, unpack
from selfplay.types import digest, record

TEST_TOOLS = ("coverage", "pytest", "pytest-json-report")
INSIDE = "/opt/selfplay/env"
"""Where the environment lies inside a sandbox."""
PYTHON_INSIDE = f"{INSIDE}/bin/python"
EMPTY = "empty"
"""A folder of the environment with nothing in it, for mounting over what a sandbox is not to see."""
_LAYOUT = 2
"""Raised when what is written below changes, so that older folders are not taken for it."""

_ETC = {
    "passwd": "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n",
    "group": "sandbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "ld.so.cache": "",
}
"""The sandbox's whole /etc; the last is where the host's is mounted."""

LOOK = """
import os, platform, pytest, pytest_jsonreport
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert int(status["CapEff"], 16) == 0, "it has capabilities"
assert status["NoNewPrivs"].strip() == "1", "it could gain privileges"
assert not os.access("/etc/shadow", os.R_OK), "it reads /etc/shadow"
assert [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]] == ["lo"], "it has a network"
print(f"Python {platform.python_version()}, pytest {pytest.__version__}, no capabilities, no network")
"""
"""Looks around inside an isolated sandbox; fails where it should not be as it is."""


@record
class Environment:
    """A test environment on disk."""

    path: Path
    """The virtual environment; `etc/` beside its `bin/` is the sandbox's /etc."""
    digest: str
    versions: tuple[str, ...]
    """`name==version` of the tools, sorted."""
    wheels: tuple[Wheel, ...] = ()
    """What the repository requires beside them."""

    @property
    def python(self) -> str:
        """The interpreter on the host."""
        return str(self.path / "bin" / "python")

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return self.path / "lib" / _python_folder() / "site-packages"


def python_argv(python: str, *arguments: str) -> list[str]:
    """The command that starts `python` isolated: no PYTHON* variables, no user site, no work tree on `sys.path`."""
    return [python, "-I", *arguments]


def tool_environment(distributions: Sequence[str] = TEST_TOOLS, *, wheels: Sequence[Wheel] = ()) -> Environment:
    """The environment that holds `distributions`, what they require, and `wheels`; made where the cache lacks it.

    Raises:
        NotReady: one of them is not installed beside the engine, or a wheel is not what was pinned.
    """
    found = [metadata.distribution(name) for name in _closure(distributions)]
    versions = _versions(found)
    pins = tuple(sorted(wheel.sha256 for wheel in wheels))
    key = digest("environment", _LAYOUT, sys.version, sys.base_prefix, versions, pins)
    path = cache_folder() / "env" / key
    if not path.is_dir():
        _make(path, found, wheels)
    return Environment(path=path, digest=key, versions=versions, wheels=tuple(wheels))


def tool_versions(distributions: Sequence[str] = TEST_TOOLS) -> tuple[str, ...]:
    """`name==version` of `distributions` and what they require, sorted; nothing is made.

    Raises:
        NotReady: one of them is not installed beside the engine.
    """
    return _versions(metadata.distribution(name) for name in _closure(distributions))


def _versions(found: Iterable[metadata.Distribution]) -> tuple[str, ...]:
    return tuple(sorted(f"{canonicalize_name(dist.name)}=={dist.version}" for dist in found))


@functools.cache
def _closure_of(name: str) -> tuple[str, ...]:
    try:
        requirements = metadata.distribution(name).requires or []
    except metadata.PackageNotFoundError as error:
        raise NotReady(
            f"`{name}` is not installed beside selfplay, so no sandbox can hold it", hint=f"pip install {name}"
        ) from error
    parsed = [Requirement(text) for text in requirements]
    needed = [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return tuple(sorted({canonicalize_name(r.name) for r in needed}))


def _closure(names: Iterable[str]) -> tuple[str, ...]:
    """`names` and what they require, without extras, under this interpreter's markers."""
    seen: set[str] = set()
    todo = [str(canonicalize_name(name)) for name in names]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _closure_of(name)
    return tuple(sorted(seen))


def _make(path: Path, distributions: Iterable[metadata.Distribution], wheels: Iterable[Wheel]) -> None:
    """Write it aside and rename, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))
    try:
        aside.chmod(0o755)
        packages = aside / "lib" / _python_folder() / "site-packages"
        packages.mkdir(parents=True)
        for distribution in distributions:
            _copy(distribution, packages)
        taken = frozenset(place.name for place in packages.iterdir())
        for wheel in wheels:
            unpack(wheel, packages, taken=taken)
        compileall.compile_dir(packages, quiet=2)
        _interpreter(aside)
        (aside / EMPTY).mkdir()
        (aside / "etc").mkdir()
        for name, text in _ETC.items():
            (aside / "etc" / name).write_text(text, encoding="utf-8")
        try:
            aside.rename(path)
        except OSError:
            # Another process was quicker.
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy(distribution: metadata.Distribution, packages: Path) -> None:
    if distribution.files is None:
        raise NotReady(
            f"`{distribution.name}` was installed without a list of its files",
            hint=f"install selfplay in a virtual environment, or: pip install --force-reinstall {distribution.name}",
        )
    for file in distribution.files:
        if ".." in file.parts or file.is_absolute():
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            target = packages.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _interpreter(folder: Path) -> None:
    """What `python -m venv` writes, without its second interpreter start."""
    # note: `_base_executable` is what `venv` itself uses; `sys.executable` may be another environment's link.
    base = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    (folder / "bin").mkdir()
    for name in ("python", "python3", _python_folder()):
        (folder / "bin" / name).symlink_to(base)
    version = ".".join(map(str, sys.version_info[:3]))
    (folder / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\nversion = {version}\n", encoding="utf-8"
    )


def _python_folder() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"
