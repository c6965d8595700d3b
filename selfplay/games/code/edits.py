"""The reply form of the code game: one to three lines of a numbered function, each with its new text.

A function is shown as `number` prints it, without the indentation of its first line and with only the head of its
docstring. A reply names the lines it changes and nothing else:

    3|    return a - b

What is covered: showing a function, reading a reply strictly, saying in one sentence why a reply is refused, and
applying an edit so that every untouched line keeps its bytes (indentation of methods and nested functions included).
The number of lines never changes: a line is removed by giving it no text (`3|`), and code is added by giving a line
more of it. So the inverse of an edit is an edit: whatever an injector can break, a repairer can mend in the same form.

What is not covered: inserting lines, editing the signature, the decorators or the docstring (each is refused), and
whether the result imports or changes behaviour, which only tests in a sandbox can say. Nothing here runs code.

Example:
    >>> source = "def add(a, b):\\n    return a + b\\n"
    >>> print(number(source))
    1|def add(a, b):
    2|    return a + b
    >>> edit = parse("2|    return a - b", source=source)
    >>> assert isinstance(edit, Edit)
    >>> apply(source, edit)
    'def add(a, b):\\n    return a - b\\n'
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Sequence
from enum import StrEnum

from selfplay.types import record

MAX_CHARS = 2_000
"""Longest reply that is read at all; anything longer is refused before it is looked at."""
MAX_LINES = 3
"""Most lines that one reply may change."""

_LINE = re.compile(r"([0-9]{1,4})\|(.*)")

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Reason(StrEnum):
    """Why a reply is not an edit: a closed set, written to the ledger."""

    TOO_LONG = "too_long"
    """More characters than `MAX_CHARS`; the reply was not read."""
    NOT_TEXT = "not_text"
    """Control characters, unpaired surrogates or bytes that are not UTF-8."""
    EMPTY = "empty"
    """Nothing but white space."""
    NO_EDIT = "no_edit"
    """No line of the reply has the form `N|text`."""
    MALFORMED = "malformed"
    """Some lines have the form `N|text`, but not all."""
    TOO_MANY_LINES = "too_many_lines"
    """More edited lines than allowed."""
    DISORDERED = "disordered"
    """Line numbers repeat or go down."""
    OUT_OF_RANGE = "out_of_range"
    """A line number that the function does not have, or one of a string's lines to the left of the function."""
    UNCHANGED = "unchanged"
    """The program is the same: same text, or only white space and comments differ."""
    NOT_PARSABLE = "not_parsable"
    """The edited function is not Python."""
    SIGNATURE = "signature"
    """The edit changes more than the body: name, arguments, decorators, or code outside the function."""
    DOCSTRING = "docstring"
    """The edit changes the docstring."""


UNREAD = frozenset({Reason.TOO_LONG, Reason.NOT_TEXT, Reason.EMPTY, Reason.NO_EDIT, Reason.MALFORMED})
"""Reasons of replies that say no edit; the others say one that is not allowed."""


@record
class Edit:
    """New text for some lines of one function."""

    lines: tuple[tuple[int, str], ...]
    """(line number from 1, text as shown by `number`), in ascending order; empty text blanks the line."""

    @property
    def text(self) -> str:
        """The reply that `parse` reads back as this edit."""
        return "\n".join(f"{n}|{line}" for n, line in self.lines)


@record
class Refusal:
    """A reply that is not an edit."""

    reason: Reason
    why: str
    """One sentence a person can read."""


def number(source: str) -> str:
    """The function as a player sees it: `N|line` for each line, margin removed, docstring cut to its first words.

    Line numbers are those of `source`, so the numbers of a cut docstring's lines are missing.
    """
    hidden = _docstring_tail(source)
    return "\n".join(f"{n}|{line}" for n, line in enumerate(shown(source), start=1) if n not in hidden)


def shown(source: str) -> list[str]:
    """The lines of `source` without the indentation of its first line.

    A line that lacks that indentation (inside a string of several lines) is shown as it is.
    """
    margin = _margin(source)
    return [line.removeprefix(margin) for line in _lines(source)]


def parse(reply: str, *, source: str, max_lines: int = MAX_LINES) -> Edit | Refusal:
    """The edit that `reply` describes, already known to apply to `source` and to keep to its body; else a refusal.

    `source` must be exactly one function or method, possibly indented.

    Raises:
        ValueError: `source` is not one function (a mistake of the caller, not of the player).
    """
    before = definition(source)
    if before is None:
        raise ValueError("parse needs the source of exactly one function")
    edit = _read(reply, editable=_editable(source), max_lines=max_lines)
    if isinstance(edit, Refusal):
        return edit
    edited = apply(source, edit)
    if edited == source:
        return Refusal(reason=Reason.UNCHANGED, why="The edit leaves every line as it was.")
    return _compare(before, edited) or edit


def apply(source: str, edit: Edit) -> str:
    """`source` with the lines of `edit` replaced; all other lines keep their bytes.

    Raises:
        IndexError: a line number outside `source`.
    """
    margin = _margin(source)
    lines = source.split("\n")
    for n, text in edit.lines:
        if not 1 <= n <= len(lines):
            raise IndexError(f"line {n} of a function with {len(lines)} lines")
        lines[n - 1] = margin + text if text.strip() else ""
    return "\n".join(lines)


def invert(source: str, edit: Edit) -> Edit:
    """The edit that turns `apply(source, edit)` back into `source`, up to white space on blank lines."""
    lines = shown(source)
    return Edit(lines=tuple((n, lines[n - 1]) for n, _ in edit.lines))


def definition(source: str) -> Definition | None:
    """The syntax tree of the one function in `source`, or None where that is not what `source` holds.

    The tree's line numbers are those of `source` plus the number of lines that `offset` names.
    """
    wrapped = "if True:\n" + source if _margin(source) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # note: a bad escape in somebody's string is not our warning.
            body = ast.parse(wrapped).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) == 1 and isinstance(body[0], ast.If) and _margin(source):
        body = body[0].body if not body[0].orelse else []
    return body[0] if len(body) == 1 and isinstance(body[0], Definition) else None


def offset(source: str) -> int:
    """How many lines the tree of `definition` is shifted down: 1 where `source` is indented, else 0."""
    return 1 if _margin(source) else 0


def docstring(function: ast.AST) -> ast.Expr | None:
    """The statement that is the docstring of a function or class, or None."""
    if isinstance(function, Definition | ast.ClassDef) and ast.get_docstring(function, clean=False) is not None:
        first = function.body[0]
        assert isinstance(first, ast.Expr)
        return first
    return None


def _read(reply: str, *, editable: Sequence[bool], max_lines: int) -> Edit | Refusal:
    """The edit as written, its line numbers checked; nothing is known yet about the program it makes."""
    if len(reply) > MAX_CHARS:
        return Refusal(reason=Reason.TOO_LONG, why=f"The reply has {len(reply)} characters; {MAX_CHARS} are read.")
    if not all(c.isprintable() or c in "\n\t" for c in reply) or "\ufffd" in reply:
        return Refusal(reason=Reason.NOT_TEXT, why="The reply holds characters that are not text.")
    if not reply.strip():
        return Refusal(reason=Reason.EMPTY, why="The reply is empty.")
    written = reply.strip("\n").split("\n")
    found = [_LINE.fullmatch(line) for line in written]
    matches = [match for match in found if match]
    if not matches:
        return Refusal(reason=Reason.NO_EDIT, why="No line of the reply has the form `N|text`.")
    if len(matches) < len(written):
        wrong = written[found.index(None)]
        return Refusal(reason=Reason.MALFORMED, why=f"A line of the reply is not of the form `N|text`: {wrong[:60]!r}.")
    lines = tuple((int(match[1]), match[2].rstrip()) for match in matches)
    numbers = [n for n, _ in lines]
    if len(lines) > max_lines:
        return Refusal(reason=Reason.TOO_MANY_LINES, why=f"The reply edits {len(lines)} lines of at most {max_lines}.")
    if any(not 1 <= n <= len(editable) or not editable[n - 1] for n in numbers):
        return Refusal(reason=Reason.OUT_OF_RANGE, why=f"The reply edits lines {numbers} of {len(editable)}.")
    if any(low >= high for low, high in itertools.pairwise(numbers)):
        return Refusal(reason=Reason.DISORDERED, why=f"The edited lines are not in ascending order: {numbers}.")
    return Edit(lines=lines)


def _compare(before: Definition, edited: str) -> Refusal | None:
    """Why `edited` is not an allowed change of the function `before`, or None where it is one."""
    after = definition(edited)
    if after is None:
        if _is_python(edited):
            return Refusal(reason=Reason.SIGNATURE, why="The edit adds code outside the function, or removes it.")
        return Refusal(reason=Reason.NOT_PARSABLE, why="The edited function is not Python.")
    if ast.get_docstring(before, clean=False) != ast.get_docstring(after, clean=False):
        return Refusal(reason=Reason.DOCSTRING, why="The edit changes the docstring.")
    try:
        if _head(before) != _head(after):
            return Refusal(reason=Reason.SIGNATURE, why="The edit changes name, arguments or decorators.")
        if ast.dump(before) == ast.dump(after):
            return Refusal(reason=Reason.UNCHANGED, why="The edit changes only white space or comments.")
    except RecursionError:
        return Refusal(reason=Reason.NOT_PARSABLE, why="The edited function is nested too deeply.")
    return None


def _head(function: Definition) -> tuple[str, ...]:
    """What an edit must leave alone: kind, name, arguments, decorators, annotations."""
    parts = [function.args, *function.decorator_list, *([function.returns] if function.returns else [])]
    return (type(function).__name__, function.name, *(ast.dump(part) for part in parts))


def _is_python(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("if True:\n" + source if _margin(source) else source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _docstring_tail(source: str) -> range:
    """The lines of the docstring after the first one that holds words; empty where there is none."""
    function = definition(source)
    statement = docstring(function) if function else None
    if statement is None or statement.end_lineno is None:
        return range(0)
    first, last = statement.lineno - offset(source), statement.end_lineno - offset(source)
    lines = _lines(source)
    while first < last and not any(c.isalnum() for c in lines[first - 1].lstrip(" \trRuU")):
        first += 1
    return range(first + 1, last + 1)


def _editable(source: str) -> list[bool]:
    """For each line, whether its new text can be indented like the function: not so for a string left of it."""
    margin = _margin(source)
    return [line.startswith(margin) or not line.strip() for line in _lines(source)]


def _lines(source: str) -> list[str]:
    return source.removesuffix("\n").split("\n")


def _margin(source: str) -> str:
    """The indentation of the first line."""
    return source[: len(source) - len(source.lstrip(" \t"))]
