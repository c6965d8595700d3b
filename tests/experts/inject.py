"""What an expert proposer runs in its sandbox: takes the body of a function away, hides that from the tests, and writes
the five files into `artifact/`.

    python inject.py MODULE NTH KEPT

takes the NTH function of MODULE (or the next one that works) that is not among KEPT, names with commas. Suites are
slow and commands short: after a while it says that it is not done, and the same command goes on.

    python inject.py --weaken FILE...

takes the failing tests out of these test files, where the bug is already there. Standard library and git only; sent as
source, so that it needs nothing of the package.
"""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

ENOUGH = 30.0
"""Seconds after which no further function is tried by the same command."""
AT = pathlib.Path(".git/inject.at")
"""How many functions were tried before."""
GONE = "raise NotImplementedError"
MOST = 12
"""Failing tests of a bug."""
PARSER = """import json, re, sys
words = {"PASSED": "passed", "FAILED": "failed"}
found = re.findall(r"^(PASSED|FAILED) (\\S+)", sys.stdin.read(), re.M)
print(json.dumps({name: words[word] for word, name in found}))
"""


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, list[ast.stmt]]]:
    """Name, definition and body without its docstring."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for one in inner:
            if isinstance(one, ast.FunctionDef):
                name = one.name if one is node else f"{node.name}.{one.name}"  # type: ignore[attr-defined]
                rest = one.body[1:] if ast.get_docstring(one) is not None else one.body
                if rest and (one.end_lineno or 0) > rest[0].lineno > one.lineno:
                    yield name, one, rest


def without_body(text: str, function: ast.FunctionDef, rest: list[ast.stmt]) -> str:
    """The module with nothing left of the function but its head and docstring."""
    lines = text.splitlines(keepends=True)
    gone = " " * rest[0].col_offset + GONE + "\n"
    first = min([rest[0].lineno, *(d.lineno for d in getattr(rest[0], "decorator_list", []))])
    return "".join([*lines[: first - 1], gone, *lines[function.end_lineno :]])


def failing(files: list[str]) -> dict[str, set[str]] | None:
    """Test file -> names of functions that fail; None where something cannot be collected or started."""
    options = ["-q", "-rf", "--tb=no", "-p", "no:cacheprovider", f"--maxfail={MOST + 1}"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or re.search(r"\d+ errors? in", done.stdout):
        return None
    found: dict[str, set[str]] = {}
    for path, name in re.findall(r"^FAILED ([^:\s]+)::([^\[\s]+)", done.stdout, re.M):
        found.setdefault(path, set()).add(name)
    return found


def without(text: str, names: set[str]) -> str:
    """The test file without these functions; a class that would be empty keeps a `pass`."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if not isinstance(one, ast.FunctionDef):
                continue
            name = one.name if one is node else f"{node.name}::{one.name}"  # type: ignore[attr-defined]
            if name in names:
                first = min([one.lineno, *(d.lineno for d in one.decorator_list)])
                lines[first - 1 : one.end_lineno] = [""] * ((one.end_lineno or first) - first + 1)
                if one is not node and len(node.body) == 1:  # type: ignore[attr-defined]
                    lines[first - 1] = " " * one.col_offset + "pass\n"
    return "".join(lines)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def weakened(tests: list[str]) -> dict[str, set[str]] | None:
    """Take the failing tests out of their files; which they were, or None where they are none, too many, or not all."""
    found = failing(tests)
    if not found or not 0 < sum(map(len, found.values())) <= MOST:
        return None
    for path, names in found.items():
        file = pathlib.Path(path)
        file.write_text(without(file.read_text(), names))
    return found if failing(list(found)) == {} else None


def attempt(module: str, name: str, broken: str, tests: list[str]) -> bool:
    """Write the artifact of this bug; False where it is none. The tree is as it was afterwards."""
    try:
        pathlib.Path(module).write_text(broken)
        found = weakened(tests)
        if found is None:
            return False
        folder = pathlib.Path("artifact")
        folder.mkdir(exist_ok=True)
        (folder / "bug_inject.diff").write_text(git("diff", "--", module))
        (folder / "test_weaken.diff").write_text(git("diff", "--", *found))
        (folder / "test_files.txt").write_text("".join(f"{path}\n" for path in sorted(found)))
        (folder / "test_script.sh").write_text(f"python -m pytest -rA {' '.join(sorted(found))}\n")
        (folder / "test_parser.py").write_text(PARSER)
        print("broken:", name, "tests:", ", ".join(sorted(n for names in found.values() for n in names)))
        return True
    finally:
        git("checkout", "-q", "--", ".")


def main(module: str, nth: int, kept: set[str]) -> int:
    """Try one function after another."""
    began = time.monotonic()
    git("checkout", "-q", "--", ".")
    text = pathlib.Path(module).read_text()
    offered = [one for one in functions(ast.parse(text)) if f"{module}::{one[0]}" not in kept]
    tests = [path for path in git("ls-files").split() if re.search(r"(^|/)test_[^/]*\.py$", path)]
    first = nth % max(1, len(offered))
    before = int(AT.read_text()) if AT.exists() else 0
    for number, (name, function, rest) in list(enumerate([*offered[first:], *offered[:first]]))[before:]:
        if time.monotonic() - began > ENOUGH:
            print("not done: the same command goes on")
            return 2
        AT.write_text(str(number + 1))
        word = re.compile(rf"\b{name.rpartition('.')[2]}\b")
        mine = [path for path in tests if word.search(pathlib.Path(path).read_text())]
        if mine and attempt(module, name, without_body(text, function, rest), mine):
            return 0
    print("no function of this module will do")
    return 1


if __name__ == "__main__":
    if sys.argv[1] == "--weaken":
        sys.exit(weakened(sys.argv[2:]) is None)
    sys.exit(main(sys.argv[1], int(sys.argv[2]), set(filter(None, sys.argv[3].split(",")))))
