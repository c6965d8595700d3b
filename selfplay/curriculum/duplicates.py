"""When are two tasks the same? Keys that copies share, computed before any solver is spent on them. Pure.

For code: the symbols that were touched, the tests that fail and the change itself, without what a formatter or a moved
line changes. For search: the answer and the evidence that it rests on. What is done with a copy is the loop's: copies
within a step share one task and lose lambda (copies - 1) / P each; a copy of an earlier task is rejected with a reason.

Example:
    >>> answer_key("The Eiffel Tower.", ["b", "a"]) == answer_key("eiffel tower", ["a", "b", "a"])
    True
"""

from __future__ import annotations

import io
import re
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
