"""The program that looks for clean copies inside a sandbox; its text is given to the sandbox's Python with `-c`.

Reads one JSON request from standard input and prints a JSON list of sentences, empty where nothing was found. Nothing
but the standard library is imported, and nothing of selfplay; nothing of the repository is run.

What is not here: any decision (`clean`).

Example of a request:
    {"tops": ["pkg"], "modules": {"pkg/a.py": [120, "9f86..."]}, "tests": ["tests/test_a.py"], "everywhere": true,
     "small": 100}
"""

import functools
import glob
import hashlib
import importlib.machinery
import importlib.util
import json
import marshal
import os
import stat
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType

OTHER_PLACES = (
    "/usr/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages",
)
NOT_SEARCHED = ("/proc", "/sys", "/dev")
Modules = Mapping[str, tuple[int, str]]


def importable(tops: list[str], tree: str) -> Iterator[str]:
    """Modules that the interpreter, or another one of this machine, finds outside of the tree."""
    standard = sysconfig.get_path("stdlib")
    base = f"{sys.base_prefix}/lib/python3*/site-packages"
    places = [path for path in sys.path if path and not inside(path, tree)]
    places += [path for pattern in (*OTHER_PLACES, base) for path in glob.glob(pattern)]
    for top in tops:
        # note: a module of the standard library is there for everybody; its content is compared below.
        found = importlib.machinery.PathFinder.find_spec(top, [p for p in places if p != standard])
        where = found and (found.origin or next(iter(found.submodule_search_locations or ()), None))
        if where:
            yield f"`{top}` is installed at {where}"


def compiled(tree: str, modules: Modules, tests: frozenset[str]) -> Iterator[str]:
    """Bytecode in the tree that is not a test's."""
    for folder, _, names in os.walk(tree):
        for name in names:
            if name.endswith((".pyc", ".pyo")):
                path = os.path.join(folder, name)
                home = os.path.dirname(folder) if os.path.basename(folder) == "__pycache__" else folder
                source = os.path.relpath(os.path.join(home, name.split(".")[0] + ".py"), tree)
                if source not in tests and (source in modules or "-pytest-" not in name):
                    yield f"{os.path.relpath(path, tree)} in the work tree is bytecode of the package"


def elsewhere(tree: str, modules: Modules, small: int) -> Iterator[str]:
    """Files outside of the tree that are a module's source or its bytecode."""
    known: dict[str, list[str]] = {}
    for path, (size, _) in modules.items():
        if size >= small:
            known.setdefault(os.path.basename(path)[:-3], []).append(path)
    for folder, folders, names in os.walk("/"):
        folders[:] = [f for f in folders if not hidden(os.path.join(folder, f), tree)]
        for name in names:
            stem, dot, rest = name.partition(".")
            if not dot or stem not in known:
                continue
            path = os.path.join(folder, name)
            if rest == "py" and any(same_source(path, modules[one]) for one in known[stem]):
                yield f"{path} is a copy of a module"
            elif rest.endswith(("pyc", "pyo")) and any(same_code(path, one, modules[one], tree) for one in known[stem]):
                yield f"{path} is bytecode of a module"


def same_source(path: str, module: tuple[int, str]) -> bool:
    """True where the file has the content of a module."""
    content = read(path, size=module[0])
    return bool(content) and hashlib.sha256(content).hexdigest() == module[1]


def same_code(path: str, module: str, described: tuple[int, str], tree: str) -> bool:
    """True where a file of bytecode does what a module does; another interpreter's, where size and path agree."""
    content = read(path)
    if content[:4] == importlib.util.MAGIC_NUMBER:
        try:
            # note: code objects are compared without the names of their files.
            return bool(marshal.loads(content[16:]) == compiled_module(os.path.join(tree, module), level(path)))
        except (ValueError, EOFError, TypeError):
            return False
    size = int.from_bytes(content[12:16], "little")
    return size == described[0] and f"/{module}".encode() in content


@functools.cache
def compiled_module(path: str, optimize: int) -> CodeType | None:
    """What the compiler makes of a module of the tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code: CodeType = compile(read(path), "module", "exec", dont_inherit=True, optimize=optimize)
        except (SyntaxError, ValueError, RecursionError):
            return None
    return code


def level(path: str) -> int:
    """The level of optimisation that a file's name tells."""
    return next((n for n in (1, 2) if f".opt-{n}." in path), 0)


def read(path: str, size: int | None = None) -> bytes:
    """A regular file's bytes; nothing for what cannot be read, or is not of the size that is asked for."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > 1 << 24 or size not in (None, found.st_size):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def inside(path: str, tree: str) -> bool:
    """True for the tree and what lies in it."""
    return os.path.realpath(path) == tree or os.path.realpath(path).startswith(tree + os.sep)


def hidden(path: str, tree: str) -> bool:
    """True for folders that are not searched: the tree itself, and what is no file system."""
    return path == tree or path in NOT_SEARCHED or os.path.islink(path)


def main() -> None:
    request = json.load(sys.stdin)
    tree = os.path.realpath(os.getcwd())
    modules = {path: (size, sha256) for path, (size, sha256) in request["modules"].items()}
    found = list(importable(request["tops"], tree))
    found += compiled(tree, modules, frozenset(request["tests"]))
    if request["everywhere"]:
        found += elsewhere(tree, modules, request["small"])
    print(json.dumps(found[:100]))


if __name__ == "__main__":
    main()
