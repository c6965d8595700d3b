"""When are two tasks the same? Keys that copies share, computed before any solver is spent on them. Pure.

For code: the symbols that were touched, the tests that fail and the change itself, without what a formatter, a moved
line or another name for a local variable changes. For search: the answer and the evidence that it rests on. SSR (arXiv
2512.18552) names duplicates as a gap of its own. What is done with a copy is the loop's: copies within a step share one
task and lose lambda (copies - 1) / P each; a copy of an earlier task is rejected with a reason.

Example:
    >>> answer_key("The Eiffel Tower.", ["b", "a"]) == answer_key("eiffel tower", ["a", "b", "a"])
    True
"""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
import unicodedata
from collections.abc import Iterable

from selfplay.types import digest

_HEADER = re.compile(r"^(diff |index |--- |\+\+\+ |@@ |new file|deleted file|similarity|rename |old mode|new mode)")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
    tokenize.ENCODING,
}


def code_key(symbols: Iterable[str], failing: Iterable[str], diff: str) -> str:
    """What two bugs share that touch the same symbols, fail the same tests and change the same code.

    Orders and repetitions do not count; see `normalised` for the diff.
    """
    return digest("code", sorted(set(symbols)), sorted(set(failing)), normalised(diff))


def answer_key(answer: str, evidence: Iterable[str]) -> str:
    """What two questions share that have the same answer on the same evidence (ids of documents or passages).

    Case, accents, articles, punctuation and spaces of the answer do not count, as in SQuAD's exact match.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", answer.casefold()) if not unicodedata.combining(c))
    words = _ARTICLES.sub(" ", "".join(c if c.isalnum() else " " for c in plain)).split()
    return digest("answer", words, sorted(set(evidence)))


def plain(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The function's program: without layout and comments, its local variables named in the order of their appearance.

    Two functions have the same one where they differ in layout, comments and a consistent renaming of locals at most.
    Parameters, attributes, imports, inner functions and their own variables keep their names.
    """
    try:
        text = ast.unparse(function)
        return ast.unparse(_Renamed(_locals(text, function)).visit(ast.parse(text)))
    except (RecursionError, SyntaxError):
        # note: a change of something nested so deeply is compared as the parser has it.
        return ast.dump(function)


class _Renamed(ast.NodeTransformer):
    """Gives some variables names by the order in which they appear."""

    def __init__(self, variables: frozenset[str]) -> None:
        self._variables = variables
        self._names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self._variables:
            node.id = self._names.setdefault(node.id, f"_local_{len(self._names)}")
        return node


_BY_NAME = frozenset({"locals", "vars", "eval", "exec", "dir"})
"""Functions that see the names of variables."""


def _locals(text: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """The function's own variables that may be renamed: bound by plain assignment, and by no inner scope as well."""
    tables = symtable.symtable(text, "<function>", "exec").get_children()
    table = next((one for one in tables if one.get_name() == function.name), None)
    nodes = list(ast.walk(function))
    if table is None or any(isinstance(node, ast.Name) and node.id in _BY_NAME for node in nodes):
        return frozenset()
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local() and not symbol.is_parameter()}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    # note: names of functions, classes, imports, exceptions and patterns are no `Name` in the tree.
    others = {getattr(node, part, None) for node in nodes for part in ("name", "asname", "rest")}
    imported = {node.name.partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    inner = {name for child in table.get_children() for name in _bound(child)}
    return frozenset(own & stored) - others - imported - inner


def _bound(table: symtable.SymbolTable) -> set[str]:
    """Every name that is local to a scope or to one inside it."""
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()}
    return own.union(*(_bound(child) for child in table.get_children()))


def normalised(diff: str) -> list[str]:
    """The removed and added lines of a unified diff, sorted by sign, without places, comments and layout."""
    lines = [line for line in diff.splitlines() if line[:1] in ("-", "+") and not _HEADER.match(line)]
    found = [line[0] + text for line in lines if (text := _tokens(line[1:]))]
    return sorted(found, key=lambda line: line[0])


def _tokens(line: str) -> str:
    """A line of Python as its tokens; another language's, or half a statement, with single spaces."""
    try:
        parts = tokenize.generate_tokens(io.StringIO(line.strip()).readline)
        return " ".join(part.string for part in parts if part.type not in _LAYOUT)
    except (tokenize.TokenError, SyntaxError):
        return " ".join(line.split())
