"""Which files of a tree a candidate's change never reaches, however it was made.

What is covered: tests and what pytest reads of the tree, modules that start by themselves or stand before those that
the tests rest on, settings of tools, compiled files, git's own. What is not: what allowed files do when they run.

Example:
    >>> why_dropped("src/sitecustomize.py")
    'run by itself when Python or pytest starts'
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

from selfplay.games.code.source import is_test

_TOOLS = frozenset({"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pytest_jsonreport", "coverage"})
_STARTED = frozenset({"sitecustomize.py", "usercustomize.py", "conftest.py"})
_SETTINGS_FILES = frozenset({"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml"})


MAX_FILE = 4 << 20
"""Largest file of a candidate, in bytes."""
MAX_BYTES = 32 << 20
"""All of its files together."""
_MAX_NAME, _MAX_PATH = 200, 1000


def filtered(
    files: Mapping[str, bytes | None], *, tree: Collection[str], allow: Sequence[str] = ("*",)
) -> tuple[Mapping[str, bytes | None], Mapping[str, str]]:
    """What counts of a candidate's files (path -> content, None: removed), and path -> why for the others.

    What counts can be written over `tree`, the paths of the clean tree: no name, size or place makes a sandbox fail.
    """
    folders = {str(parent) for path in tree for parent in PurePosixPath(path).parents}
    kept: dict[str, bytes | None] = {}
    dropped: dict[str, str] = {}
    left = MAX_BYTES
    for path, body in sorted(files.items()):
        above = {str(parent) for parent in PurePosixPath(path).parents}
        why = _why_unwritable(path) or why_dropped(path, allow=allow)
        if not why and body is None and path not in tree:
            why = "removed, and was not there"
        elif not why and (path in folders or above & {*tree, *kept}):
            why = "in place of a folder, or in a file"
        elif not why and body is not None and len(body) > MAX_FILE:
            why = f"larger than {MAX_FILE >> 20} MiB"
        elif not why and len(body or b"") > left:
            why = f"beyond {MAX_BYTES >> 20} MiB in all"
        if why:
            dropped[path.encode("utf-8", "backslashreplace").decode()] = why
        else:
            kept[path] = body
            left -= len(body or b"")
    return kept, dropped


def _why_unwritable(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or not path.isprintable() or str(pure) != path or pure.is_absolute() or ".." in pure.parts:
        return "not a path that may be written"
    if len(path.encode()) > _MAX_PATH or any(len(part.encode()) > _MAX_NAME for part in pure.parts) or path == ".":
        return "not a path that may be written"
    return ""


def why_dropped(path: str, *, allow: Sequence[str] = ("*",)) -> str:
    """Why a candidate's change of `path` does not count; empty where it does. Serves diffs of any origin."""
    parts = PurePosixPath(path).parts
    name = parts[-1]
    top = PurePosixPath(parts[1] if parts[0] == "src" and len(parts) > 1 else parts[0])
    if is_test(path):
        return "a test"
    if name in _STARTED or name.endswith((".pth", ".egg-link")):
        return "run by itself when Python or pytest starts"
    if name in _SETTINGS_FILES or any(part.endswith((".dist-info", ".egg-info")) for part in parts):
        return "settings of tools"
    if name.endswith((".pyc", ".pyo", ".so", ".pyd")) or "__pycache__" in parts:
        return "compiled"
    if any(part.startswith(".git") for part in parts):
        return "git's"
    if top.stem in _TOOLS or top.stem in sys.stdlib_module_names:
        return "in place of a module that the tests rest on"
    return "" if any(fnmatch.fnmatchcase(path, pattern) for pattern in allow) else "not among the paths that may change"
