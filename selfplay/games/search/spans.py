"""Salient spans of a text: names, numbers, dates, titles, code identifiers; found by their form alone. Pure.

What is covered: texts in scripts with capital letters, and of Chinese and Japanese what is quoted, katakana, and
numbers; identifiers of programs (dotted, with underscores, in camel case, with parentheses behind). A span never
crosses the end of a sentence, and where spans overlap the longest one stands.

What is not covered: names in scripts without capital letters, words that only a dictionary would know to be salient.

Example:
    >>> [(span.kind, span.text) for span in spans("In 1995 Guido van Rossum wrote itertools.chain() twice.")]
    [('date', '1995'), ('name', 'Guido van Rossum'), ('identifier', 'itertools.chain')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selfplay.types import record

KINDS = ("date", "title", "identifier", "name", "number")
"""What a span can be, the surest first."""
MIN_CHARS, MAX_CHARS, MAX_WORDS = 2, 60, 8
"""Of a span."""
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_WORD = r"[^\W\d_]"
_CAPITAL = r"[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]"
_NAME = rf"{_CAPITAL}[\w'’-]*{_WORD}"
_PARTICLE = r"(?:of|van|von|de|der|da|di|du|la|le|bin|al)"
_PATTERNS: dict[str, re.Pattern[str]] = {
    "date": re.compile(
        rf"\b(?:\d{{1,2}} (?:{_MONTHS}) \d{{4}}|(?:{_MONTHS}) \d{{1,2}}, \d{{4}}|(?:{_MONTHS}) \d{{4}}"
        r"|\d{4}-[01]\d-[0-3]\d|1[0-9]\d\d|20\d\d)(?![\w.]*\w)|\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?"
    ),
    "title": re.compile(r"“([^“”\n]{2,60})”|「([^「」\n]{2,30})」|『([^『』\n]{2,30})』|《([^《》\n]{2,30})》"),
    "identifier": re.compile(
        r"(?<![\w./@-])(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|_*[A-Za-z]\w*_\w*[A-Za-z]\w*|__[a-z]\w*__"
        r"|[A-Z][a-z]+(?:[A-Z][a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[a-z]\w{2,}(?=\(\)))(?![\w/@])"
    ),
    "name": re.compile(
        rf"\b[A-Z]{{2,}}[- ]?\d+\b|\b{_NAME}(?: (?:{_PARTICLE} )?{_NAME}){{0,4}}(?: \d{{1,5}})?\b|[ァ-ヴー]{{3,}}"
    ),
    "number": re.compile(r"(?<![\w.,#/-])[-−]?\d[\d,]*(?:\.\d+)?(?: ?%| (?:million|billion|thousand))?(?![\w./-]*\w)"),
}
_SENTENCE = re.compile(r"(?:^|(?<=[.!?:;])|(?<=\n)|(?<=[\"“(>|*•-]))\s*$")
_STOP = """
a an and are as at be but by can did do does each every for from he her his how i if in is it its may more
most no not note of on one only or other our returns return same see she so some such than that the their then
there these they this those to true false none two use used was we were what when where which while who will
with you your new added changed deprecated version example examples warning also all any after before because
both during even given however like many several since thus under unless until usually without
"""
_PLAIN_WORDS = frozenset(_STOP.split())
"""Words that open sentences, and headings of documents."""
_NO_IDENTIFIERS = frozenset({"e.g", "i.e", "a.k.a", "etc.and", "vs.the"})
_FILE = re.compile(r"\.(?:py|txt|html?|com|org|net|edu|cfg|ini|exe|md|rst)$", flags=re.IGNORECASE)


@record
class Span:
    """A stretch of a text."""

    text: str
    kind: str
    start: int
    """Offset in the text, in characters."""


def spans(text: str) -> list[Span]:
    """The salient spans, in order; none overlaps another."""
    found = sorted(_found(text), key=lambda span: (-len(span.text), KINDS.index(span.kind), span.start))
    kept: list[Span] = []
    taken = bytearray(len(text))
    for span in found:
        end = span.start + len(span.text)
        if not any(taken[span.start : end]):
            taken[span.start : end] = b"\1" * (end - span.start)
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)


def _found(text: str) -> Iterator[Span]:
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            group = next((number for number, part in enumerate(match.groups(), start=1) if part), 0)
            span = Span(text=match.group(group), kind=kind, start=match.start(group))
            if kind == "name":
                span = _without_start(span, text)
            if _is_salient(span):
                yield span


def _without_start(span: Span, text: str) -> Span:
    """A name without the word that is capital only because a sentence begins with it."""
    first, _, rest = span.text.partition(" ")
    opens = _SENTENCE.search(text[max(0, span.start - 40) : span.start]) is not None
    if first.casefold() in _PLAIN_WORDS or (opens and not rest and not _is_acronym(first)):
        return Span(text=rest, kind=span.kind, start=span.start + len(first) + 1)
    return span


def _is_acronym(word: str) -> bool:
    return len(word) >= 3 and word.upper() == word


def _is_salient(span: Span) -> bool:
    text, kind = span.text, span.kind
    if not MIN_CHARS <= len(text) <= MAX_CHARS or len(text.split()) > MAX_WORDS or text != text.strip():
        return False
    folded = text.casefold()
    if folded in _PLAIN_WORDS or folded in _MONTHS.casefold().split("|"):
        return False
    if kind == "name":
        return len(text) >= 3
    if kind == "number":
        return sum(c.isdigit() for c in text) >= 2 or "%" in text or " " in text
    if kind == "identifier":
        # note: a sentence that ends without a space behind its stop looks like a dotted name.
        glued = "." in text and any(part[:1].isupper() and part[1:].islower() for part in text.split(".")[1:2])
        return folded not in _NO_IDENTIFIERS and not _FILE.search(text) and not (glued and "_" not in text)
    return True
