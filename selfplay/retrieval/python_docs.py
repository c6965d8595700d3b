"""The documents that every CPython carries: the language reference's topics, and the standard library's docstrings.

What is covered: `pydoc_data.topics`; the docstrings of public modules, classes (with their methods) and functions, read
from their source without importing it; built-in and compiled public modules (`math`, `itertools`, `builtins`), which
have no source and are imported. Tests, idlelib and what runs when it is imported (`antigravity`, `this`) are left out.
Another version of Python has other documents.

Not covered: the manual itself, which is no part of an installation.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from selfplay.retrieval import Document, Skipped
from selfplay.types import digest

_LEFT_OUT = frozenset({"antigravity", "idlelib", "lib2to3", "test", "this", "turtledemo", "xxlimited", "xxsubtype"})
_TESTS = frozenset({"test", "tests", "idle_test", "__pycache__", "site-packages"})
_Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_docs() -> Iterator[Document | Skipped]:
    """Topics first, then the modules in the order of their names; a name that came before is not given again."""
    yield from _topics()
    library = Path(sysconfig.get_path("stdlib"))
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        folder, file = library / name, library / f"{name}.py"
        if folder.is_dir():
            for path in sorted(folder.rglob("*.py")):
                if not _TESTS & set(path.relative_to(library).parts):
                    yield from _source(path, library=library)
        elif file.is_file():
            yield from _source(file, library=library)
        elif importlib.util.find_spec(name) is not None:  # no module of another system
            yield from _compiled(name)


def _topics() -> Iterator[Document | Skipped]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems put it into a package of its own
        yield Skipped(name="pydoc_data.topics", reason="unreadable", detail="this Python has no pydoc_data")
        return
    for name, text in sorted(topics.items()):
        yield _document(f"topics/{name}", text, title=f"Python: {name}")


def _source(path: Path, *, library: Path) -> Iterator[Document | Skipped]:
    parts = path.relative_to(library).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    if any(part.startswith("_") and part != "__init__" for part in parts):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        yield Skipped(name=module, reason="unreadable", detail=type(error).__name__)
        return
    if text := ast.get_docstring(tree):
        yield _document(module, text)
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, _Defined) and not node.name.startswith("_") and node.name not in seen:
            seen.add(node.name)
            if text := "\n\n".join(_docstrings(node)):
                yield _document(f"{module}.{node.name}", text)


def _docstrings(node: _Defined) -> Iterator[str]:
    """Of a function or a class, and of its public methods, each behind its head."""
    text = ast.get_docstring(node)
    if text:
        yield f"{_head(node)}\n\n{text}"
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                yield from (f"{node.name}.{words}" for words in _docstrings(inner))


def _head(node: _Defined) -> str:
    return f"class {node.name}" if isinstance(node, ast.ClassDef) else f"{node.name}({ast.unparse(node.args)})"


def _compiled(name: str) -> Iterator[Document | Skipped]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 (a module of another system may raise anything)
        yield Skipped(name=name, reason="unreadable", detail=f"{type(error).__name__}: {error}"[:200])
        return
    if module.__doc__:
        yield _document(name, inspect.cleandoc(module.__doc__))
    for inner, value in sorted(vars(module).items()):
        own = inspect.isbuiltin(value) or inspect.isclass(value)
        if own and not inner.startswith("_") and (text := _live(value, inner)):
            yield _document(f"{name}.{inner}", text)


def _live(value: object, name: str) -> str:
    parts = [f"{name}\n\n{inspect.cleandoc(value.__doc__)}"] if isinstance(value.__doc__, str) else []
    if isinstance(value, type):
        for inner, method in sorted(vars(value).items()):
            text = getattr(method, "__doc__", None)
            if not inner.startswith("_") and isinstance(text, str) and not isinstance(method, ModuleType):
                parts.append(f"{name}.{inner}\n\n{inspect.cleandoc(text)}")
    return "\n\n".join(parts)


def _document(name: str, text: str, *, title: str = "") -> Document:
    return Document(id=name, title=title or name, digest=digest(title or name, text), pieces=lambda: (text,))
