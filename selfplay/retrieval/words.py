"""What the index sees of a text and of a query: the same words.

What is covered: compatible forms of a character are one (NFKC); in scripts without spaces each character is a word of
the index, and a query's run of them is asked for by its neighbouring pairs. Case, accents and English endings are the
index's own business (FTS5's `porter unicode61 remove_diacritics 2`).

Not here: passages, which keep their text as it is.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator

from selfplay.retrieval.passages import SPACELESS

MAX_WORDS = 256
"""Different words of a query that are looked at."""
_SPACELESS = re.compile(f"[{SPACELESS}]")
_WORD = re.compile(rf"[{SPACELESS}]+|(?:[^\W_{SPACELESS}]|[\u0300-\u0331])+")
"""FTS5 goes on with a word at an accent that has no composed form with its letter (m\u0304), and drops the accent."""


def indexed(text: str) -> str:
    """The text as the index is given it."""
    if text.isascii():
        return text
    return _SPACELESS.sub(r" \g<0> ", unicodedata.normalize("NFKC", text))


def terms(query: str) -> list[str]:
    """The query's different words, in order, as quoted strings of FTS5: no character of a query is syntax.

    >>> terms('the "NEAR" of 東京都')
    ['"the"', '"near"', '"of"', '"東 京"', '"京 都"']
    """
    found: dict[str, str] = {}
    for word in _words(unicodedata.normalize("NFKC", query)):
        found.setdefault(word.lower(), f'"{word}"')
        if len(found) == MAX_WORDS:
            break
    return list(found.values())


def _words(query: str) -> Iterator[str]:
    for match in _WORD.finditer(query):
        word = match.group()
        if not _SPACELESS.match(word):
            # note: beyond ASCII, what is one letter to FTS5 in two cases is not what it is to Python: its table of
            # capitals is older, and no letter becomes two (ß). As it is written it becomes what the index has.
            yield word.lower() if word.isascii() else word
        elif len(word) == 1:
            yield word
        else:
            yield from (" ".join(pair) for pair in itertools.pairwise(word))
