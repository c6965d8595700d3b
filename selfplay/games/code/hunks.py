"""The parts of a change: which lines of which files differ, and the files with only some of the parts.

What is covered: changed, made and removed text files; a part is a run of lines that differ without a line between them
that does not. What is not: which parts matter (`checks`).

Example:
    >>> parts = hunks_of({"m.py": b"a\\nb\\nc\\n"}, {"m.py": b"A\\nb\\nC\\n"})
    >>> with_only(parts[:1], clean={"m.py": b"a\\nb\\nc\\n"})
    {'m.py': b'A\\nb\\nc\\n'}
"""

from __future__ import annotations

import ast
import difflib
import itertools
import warnings
from collections.abc import Sequence

from selfplay.games.code.artifact import Files, lines_of
from selfplay.types import record


@record
class Hunk:
    """One part of a change."""

    path: str
    first: int
    """First line of the clean file that it replaces, counted from 0."""
    last: int
    """The line behind the last."""
    new: tuple[str, ...] | None
    """What stands there instead, with line ends; None: the file is removed."""


def hunks_of(clean: Files, changed: Files) -> tuple[Hunk, ...]:
    """The parts of a change, by path and line; a file that is made or removed is one part."""
    return tuple(hunk for path in sorted(changed) for hunk in _hunks(path, clean.get(path), changed[path]))


def with_only(hunks: Sequence[Hunk], *, clean: Files) -> dict[str, bytes | None]:
    """The files that these parts change, and no others."""
    files: dict[str, bytes | None] = {}
    for path in dict.fromkeys(hunk.path for hunk in hunks):
        lines = lines_of(clean.get(path))
        removed = False
        for hunk in sorted((h for h in hunks if h.path == path), key=lambda h: h.first, reverse=True):
            removed |= hunk.new is None
            lines[hunk.first : hunk.last] = hunk.new or ()
        files[path] = None if removed else "".join(lines).encode()
    return files


def parses(files: Files) -> bool:
    """True where every Python file among them can be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for path, content in files.items():
                if path.endswith(".py") and content is not None:
                    compile(content, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _hunks(path: str, old: bytes | None, new: bytes | None) -> list[Hunk]:
    before, after = lines_of(old), lines_of(new)
    if old == new:
        return []
    if old is None or new is None:
        return [Hunk(path=path, first=0, last=len(before), new=None if new is None else tuple(after))]
    # note: the equal ends are cut off first, since the matcher's time grows with the square of the length.
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    old_part, new_part = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, old_part, new_part, autojunk=False)
    return [
        Hunk(path=path, first=head + i1, last=head + i2, new=tuple(new_part[j1:j2]))
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
        if kind != "equal"
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines are equal at the start."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
