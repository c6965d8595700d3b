"""A text becomes passages of about 100 words, on sentence bounds, with their offsets.

What is covered: texts that come in pieces and never lie in memory as a whole (the cuts do not depend on where the
pieces end); scripts without spaces between words, where two characters count as a word; tables, code and data without
any sentence, which are cut after 100 words; runs without any space, which are cut after 64 characters and count as
words.

A passage ends at the end of the sentence that is nearest to 100 words, among those between 50 and 120. An end is a full
stop, question or exclamation mark (with closing quotes and brackets) before a space and no small letter, the same marks
of Chinese and Japanese anywhere, and an empty line. Not covered: more abbreviations than a few English ones; languages
whose sentences end otherwise are cut at words.

Passages do not overlap; what lies between them is white space. What lies in none is white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from selfplay.types import record

WORDS = 100
"""Words of a passage, about."""
LEAST, MOST = WORDS // 2, WORDS * 6 // 5
"""A sentence may end a passage from here to there."""
LOOK = 16_384
"""Characters that one passage may span, white space included: all that a cut may depend on."""
SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
"""Character ranges of scripts that put no space between words, for a class of a regular expression."""

_UNIT = re.compile(rf"[{SPACELESS}]|[^\s{SPACELESS}]{{1,64}}")
_ENDS = re.compile(r"[.!?]['\"”’)\]]*\Z")
_WIDE_ENDS = re.compile(r"[。！？｡][」』）”’]*\Z")
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n")
_SHORT_FORM = re.compile(r"\(?(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|No|Fig|cf|vs|etc|al|e\.g|i\.e)\.\Z")


@record
class Cut:
    """A stretch of a text."""

    start: int
    """Offset of its first character in the text."""
    end: int
    """Offset behind its last."""
    text: str


def cut(pieces: Iterable[str]) -> Iterator[Cut]:
    """The passages of a text that comes in `pieces`, in order; none where it is white space."""
    waiting = iter(pieces)
    buffer, begin, offset, more = "", 0, 0, True
    while True:
        if more and len(buffer) - begin < LOOK:
            # note: what is done with is dropped here only, so that no piece is copied for each passage
            gathered = [buffer[begin:]]
            size = len(gathered[0])
            while size < 4 * LOOK and (piece := next(waiting, None)) is not None:
                gathered.append(piece)
                size += len(piece)
            more = size >= 4 * LOOK
            buffer, offset, begin = "".join(gathered), offset + begin, 0
        begin = _skip_space(buffer, begin)
        if begin == len(buffer):
            if more:
                continue
            return
        if more and len(buffer) - begin < LOOK:
            continue
        end = _end(buffer, begin)
        yield Cut(start=offset + begin, end=offset + end, text=buffer[begin:end])
        begin = end


def _skip_space(text: str, at: int) -> int:
    found = _UNIT.search(text, at)
    return found.start() if found else len(text)


def _end(text: str, begin: int) -> int:
    """Where the passage ends that begins at `begin`, a character that is no white space."""
    words, full, best = 0.0, 0, 0
    nearest = float(WORDS)
    last: re.Match[str] | None = None
    for unit in _UNIT.finditer(text, begin, begin + LOOK):
        if last is not None and words >= LEAST and abs(words - WORDS) < nearest and _ends(text, last, unit):
            best, nearest = last.end(), abs(words - WORDS)
        weight = 0.5 if len(unit.group()) == 1 and _is_spaceless(unit.group()) else 1.0
        if words + weight > MOST:
            return best or full
        words += weight
        last = unit
        if words <= WORDS:
            full = unit.end()
    assert last is not None
    return last.end()


def _is_spaceless(character: str) -> bool:
    return character > "\u0dff" and re.match(f"[{SPACELESS}]", character) is not None


def _ends(text: str, last: re.Match[str], after: re.Match[str]) -> bool:
    """Does a sentence end between these two neighbours?"""
    word = last.group()
    if _WIDE_ENDS.search(word) and not _WIDE_ENDS.search(after.group()[:1]):
        return True
    if last.end() == after.start():
        return False
    if _EMPTY_LINE.search(text, last.end(), after.start()):
        return True
    return _ENDS.search(word) is not None and not after.group()[0].islower() and not _SHORT_FORM.match(word)
