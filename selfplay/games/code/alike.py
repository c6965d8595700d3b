"""When are two functions nearly the same program? By a digest of their normalised syntax trees. Pure.

The function's name, its docstring, annotations, decorators and the names of all its variables, parameters included, do
not count; nor do layout and comments. Attributes, called names that are not its own, constants and the structure do. So
copies with renamed variables are found, and functions that do the same by other code are not (MinHash over tokens would
find more and be less certain: Lee et al. 2021, arXiv 2107.06499, remove near-duplicates so).

Not here: when two bugs are the same (`games.duplicates`), what is done with duplicates (`opened`, `evaluation.making`).

Example:
    >>> key("def f(a):\\n    return a + 1\\n") == key("def g(b: int) -> int:\\n    return b + 1\\n")
    True
"""

from __future__ import annotations

import ast
import copy

from selfplay.games.code import edits
from selfplay.types import digest


def key(source: str) -> str:
    """The digest of one function's normalised tree; of what is not one function, that of its text."""
    function = edits.definition(source)
    if function is None:
        return digest("text", source)
    docstring = edits.docstring(function)
    body: list[ast.stmt] = [node for node in function.body if node is not docstring] or [ast.Pass()]
    bare = copy.copy(function)
    bare.name, bare.body, bare.decorator_list, bare.returns, bare.type_comment = "f", body, [], None, None
    try:
        return digest(type(function).__name__, _dumped(bare))
    except RecursionError:
        return digest("text", source)


def _dumped(function: edits.Definition) -> str:
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names: dict[str, str] = {}

    def called(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name in own else name

    def told(node: object) -> object:
        if isinstance(node, ast.arg):
            return ["arg", called(node.arg)]
        if isinstance(node, ast.Name):
            return ["name", called(node.id)]
        if isinstance(node, ast.AnnAssign):
            return ["assign", told(node.target), told(node.value)]
        if isinstance(node, ast.AST):
            return [type(node).__name__, *(told(value) for _, value in ast.iter_fields(node) if _ != "returns")]
        if isinstance(node, list):
            return [told(one) for one in node]
        return repr(node)

    return repr(told(function))
