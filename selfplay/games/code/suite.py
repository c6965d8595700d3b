"""How a repository's test suite is started: where its imports begin, and which of its pytest settings are kept.

What is covered: `src` layouts, `pythonpath`, and the settings that decide what is a test (`python_files`,
`python_classes`, `python_functions`, `testpaths`, `norecursedirs`, `xfail_strict`), read from the clean tree as it was
fetched. All else is left out on purpose (addopts, plugins, warning filters): a verdict must not depend on what a
candidate could reach. What is not covered: conftest files, which pytest finds itself.

What becomes of what a suite may hold (`tests/games/code/test_suites.py`): parameters of any characters, unittest
classes, their `subTest`s and session fixtures decide like other tests; a session fixture counts for the first test that
asks for it. Left out: expected failures and unexpected passes, skipped tests, the `subtests` fixture, files that cannot
be collected, docstrings. A `test*.txt` doctest is one test, and its bugs are no tasks, since the engine cannot weaken
it. A bug that stops a file from being collected is refused; a test that a bug makes vanish has failed.

Example:
    >>> suite_of(repository).roots  # doctest: +SKIP
    ('', 'src')
"""

from __future__ import annotations

import configparser
import shlex
import tomllib
from collections.abc import Mapping

from selfplay.games.code.source import Repository
from selfplay.types import record

_KEPT = ("python_files", "python_classes", "python_functions", "norecursedirs", "xfail_strict")
_HOMES = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest"))


@record
class Suite:
    """What the program inside the sandbox is told."""

    roots: tuple[str, ...]
    """Folders that go on `sys.path`, relative to the tree."""
    options: tuple[str, ...]
    """pytest options (`-o name=value`)."""
    paths: tuple[str, ...]
    """Where tests are collected when all of them run."""


def suite_of(repository: Repository) -> Suite:
    """The suite of a clean tree; settings that cannot be read are as good as none."""
    settings = _settings(repository)
    roots = ["", *(["src"] if any(f.startswith("src/") and f.endswith(".py") for f in repository.files) else [])]
    roots += [root for root in _split(settings.get("pythonpath")) if root not in (".", *roots) and _inside(root)]
    options = [word for name in _KEPT if settings.get(name) for word in ("-o", f"{name}={_join(settings[name])}")]
    paths = [p for p in _split(settings.get("testpaths")) if _inside(p) and (repository.root / p).exists()]
    return Suite(roots=tuple(roots), options=tuple(options), paths=tuple(paths))


def _settings(repository: Repository) -> Mapping[str, object]:
    """pytest's own order: pytest.ini, then pyproject.toml, then tox.ini and setup.cfg."""
    for path, section in _HOMES[:2]:
        found = _ini(repository, path, section)
        if found is not None:
            return found
    found = _pyproject(repository)
    if found is not None:
        return found
    return next((s for path, section in _HOMES[2:] if (s := _ini(repository, path, section)) is not None), {})


def _pyproject(repository: Repository) -> Mapping[str, object] | None:
    if "pyproject.toml" not in repository.files:
        return None
    try:
        tool = tomllib.loads(repository.read("pyproject.toml")).get("tool", {})
        pytest = tool.get("pytest", {})
        found = pytest.get("ini_options", pytest)
        return found if isinstance(found, dict) and found else None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError):
        return None


def _ini(repository: Repository, path: str, section: str) -> Mapping[str, object] | None:
    if path not in repository.files:
        return None
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(repository.read(path))
    except (configparser.Error, UnicodeDecodeError):
        return None
    return dict(parser[section]) if section in parser else None


def _split(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(part) for part in value]
    try:
        return shlex.split(str(value or ""))
    except ValueError:
        return []


def _join(value: object) -> str:
    return " ".join(str(part) for part in value) if isinstance(value, list) else str(value)


def _inside(path: str) -> bool:
    return not path.startswith(("/", "-")) and ".." not in path.split("/")
