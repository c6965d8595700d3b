"""Supervised examples that teach a small model the reply form of both roles before self-play.

What is covered: functions of the standard library, read from their source files and never imported, and `example`,
a pure function of (seed, index) that makes one prompt's variables with the replies that are right for it. An injector
example carries several replies, different bugs in one function, because a learner computes a shared prompt once; a
repairer example carries the one reply that undoes a bug.

What is not covered: which functions are held out (the caller passes train functions only), rendering prompts
(`roles/`), training, and finding out which tests a bug fails (`failures`, where the caller knows).

Example:
    >>> package = (Function(name="m:add", source="def add(a, b):\\n    return a + b\\n"),)
    >>> one = example(1, seed=0, package=package, stdlib=())
    >>> one.role, one.replies
    ('repairer', ('2|    return a + b',))
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from selfplay.games.code import edits
from selfplay.games.code.mutate import Mutation, mutations
from selfplay.types import draw, record

MAX_LINES = 15
"""Longest function, in lines as shown (a docstring counts with its first words only)."""
MAX_CHARS = 400
"""Longest function, in characters as shown."""
INJECTOR_EVERY = 4
"""One example in this many is the injector's: it carries several replies, a repairer's only one."""
MIN_MUTATIONS = 3
"""Functions with fewer one-line mutations teach little."""

_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "encodings", "ensurepip", "idlelib", "lib-dynload", "lib2to3", "msilib"}
    | {"pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo", "venv"}
)
_SKIPPED_FILES = ("_sysconfigdata", "antigravity", "this", "turtle")


@record
class Function:
    """One function that examples may be made of."""

    name: str
    """Where it is from, for people and for the order: `heapq:merge`."""
    source: str
    """Its lines as in the file, indentation included."""


@record
class Example:
    """One prompt and the replies that are right for it."""

    role: Literal["injector", "repairer"]
    variables: Mapping[str, str]
    """What the role's template needs: `function`, and `tests` for the repairer (empty where unknown)."""
    replies: tuple[str, ...]
    """At least one; each is accepted by `edits.parse`."""
    origin: str
    """The function's name."""


Failures = Callable[[Function, Mutation], str | None]
"""What the failing tests say about a mutation: "" where it is known that none fails, None where nobody knows."""


def example(
    index: int,
    *,
    seed: int,
    package: Sequence[Function],
    stdlib: Sequence[Function],
    failures: Failures | None = None,
    package_share: float = 0.3,
    max_replies: int = 8,
) -> Example:
    """Example number `index` of the run with `seed`: one in `INJECTOR_EVERY` is an injector's, the rest repairer's.

    `package_share` of them are made of the package's functions, the rest of the standard library's. A mutation that
    `failures` knows to pass all tests is never used.

    Raises:
        ValueError: no function offers a mutation.
    """
    injects = index % INJECTOR_EVERY == 0
    for attempt in range(100):
        key = ("warmup", seed, index, attempt)
        function = _choose_function(key, package=package, stdlib=stdlib, package_share=package_share)
        bugs = _choose_bugs(key, _mutations(function.source), limit=max_replies if injects else 1)
        known = {bug: failures(function, bug) for bug in bugs} if failures else dict.fromkeys(bugs)
        bugs = [bug for bug in bugs if known[bug] != ""]
        if not bugs:
            continue
        if injects:
            variables, replies = {"function": edits.number(function.source)}, [bug.edit.text for bug in bugs]
            return Example(role="injector", variables=variables, replies=tuple(replies), origin=function.name)
        broken = edits.apply(function.source, bugs[0].edit)
        variables = {"function": edits.number(broken), "tests": known[bugs[0]] or ""}
        return Example(role="repairer", variables=variables, replies=(bugs[0].repair.text,), origin=function.name)
    raise ValueError("no function with a mutation to learn from")


def functions_of_stdlib(root: Path | None = None, *, limit: int | None = None) -> tuple[Function, ...]:
    """Functions and methods of the standard library, files in a fixed pseudo-random order; nothing is imported.

    Files of tests, tools and generated tables are left out; so are functions that `usable` refuses. With `limit`,
    reading stops once that many are found. The result depends on the Python version and on nothing else.
    """
    root = root or Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py") if _is_read(path.relative_to(root)))
    found: list[Function] = []
    for path in sorted(paths, key=lambda path: draw("stdlib", path)):
        found += [function for function in functions_of_file(root / path, name=path) if usable(function.source)]
        if limit is not None and len(found) >= limit:
            return tuple(found[:limit])
    return tuple(found)


def functions_of_file(path: Path, *, name: str) -> list[Function]:
    """The functions and methods of one source file, outermost only; none where the file is not plain Python."""
    try:
        text = path.read_bytes().decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, OSError, RecursionError):
        return []
    if "\r" in text:  # note: other line ends than \n would not round-trip through an edit.
        return []
    lines = text.split("\n")
    found = []
    for qualified, node in _definitions(tree, prefix=""):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        source = "\n".join(lines[first - 1 : node.end_lineno]) + "\n"
        if edits.definition(source) is not None:
            found.append(Function(name=f"{name}::{qualified}", source=source))
    return found


def usable(source: str, *, max_lines: int = MAX_LINES, max_chars: int = MAX_CHARS) -> bool:
    """True where a function is short enough to be shown cheaply and offers at least `MIN_MUTATIONS` mutations."""
    view = edits.number(source)
    if view.count("\n") + 1 > max_lines or len(view) > max_chars or len(source.splitlines()) > 99:
        return False
    return edits.definition(source) is not None and len(_mutations(source)) >= MIN_MUTATIONS


@cache
def _mutations(source: str) -> tuple[Mutation, ...]:
    return mutations(source)


def _is_read(path: Path) -> bool:
    return not (_SKIPPED_FOLDERS.intersection(path.parts[:-1]) or path.stem.startswith(_SKIPPED_FILES))


def _definitions(tree: ast.Module | ast.ClassDef, *, prefix: str) -> Iterator[tuple[str, edits.Definition]]:
    for node in tree.body:
        if isinstance(node, edits.Definition):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node, prefix=f"{prefix}{node.name}.")


def _choose_function(
    key: tuple[object, ...], *, package: Sequence[Function], stdlib: Sequence[Function], package_share: float
) -> Function:
    from_package = bool(package) and (not stdlib or draw(*key, "source") % 1000 < package_share * 1000)
    functions = package if from_package else stdlib
    if not functions:
        raise ValueError("no function with a mutation to learn from")
    return functions[draw(*key, "function") % len(functions)]


def _choose_bugs(key: tuple[object, ...], offered: Sequence[Mutation], *, limit: int) -> list[Mutation]:
    """Up to `limit` different mutations, a kind drawn first and one of its mutations second, so that kinds balance."""
    left = list(offered)
    chosen: list[Mutation] = []
    while left and len(chosen) < limit:
        kinds = sorted({mutation.kind for mutation in left})
        kind = kinds[draw(*key, "kind", len(chosen)) % len(kinds)]
        same = [mutation for mutation in left if mutation.kind == kind]
        chosen.append(same[draw(*key, "mutation", len(chosen)) % len(same)])
        left.remove(chosen[-1])
    return chosen
