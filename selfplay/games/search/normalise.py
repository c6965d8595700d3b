"""When are two answers the same? SQuAD's normalisation, and one beside it that holds beyond English. Pure.

`squad` is the published one (Rajpurkar et al., arXiv 1606.05250, the script `evaluate-v1.1.py`; also Search-R1's):
lower case, ASCII punctuation dropped, `a`, `an` and `the` dropped, single spaces. It makes `3.14` and `314` equal,
`C++` and `C`, `-5` and `5`, and knows neither `—` nor `。`.

`plain` is what decides here: compatible forms of a character are one (NFKC), case is folded, accents of Latin, Greek
and Cyrillic letters do not count; punctuation separates words, but for an apostrophe inside one (a possessive's with
its `s`) and the dots of an abbreviation, which are dropped; what tells numbers and programs apart is kept (a decimal
point, a sign, `+` and `#` behind a letter, `_`). Commas between digits are dropped. Articles go unless nothing else is
left.

Not here: what a reply holds (`replies`), whether another wording means the same (a judge).

Example:
    >>> squad("The Eiffel-Tower."), plain("The Eiffel-Tower.")
    ('eiffeltower', 'eiffel tower')
    >>> plain("3.14") == plain("314"), squad("3.14") == squad("314")
    (False, True)
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from selfplay.retrieval.passages import SPACELESS

_ARTICLES = frozenset({"a", "an", "the"})
_SQUAD_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)
_WITHOUT_ACCENTS = re.compile("[A-Za-z\u0370-\u03ff\u0400-\u04ff]")
"""Letters whose marks above and below do not make another word."""
_INSIDE = re.compile(r"(?<=\w)['’]s(?!\w)|(?<=\w)['’‘`](?=\w)|(?<=\b[^\W\d_])\.")
"""A possessive's end; an apostrophe inside a word; a dot behind a letter that stands alone, as in U.S."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_KEPT = re.compile(r"(?<=\d)\.(?=\d)|(?<!\w)[-−](?=\d)|(?<=[^\W\d_])[+#]+(?!\w)|(?<=\+)\+")
"""Marks that make another number or another program: 3.14, -5, C++, C#."""
_SPACELESS = re.compile(f"[{SPACELESS}]")


def squad(text: str) -> str:
    """SQuAD's normalised form."""
    return " ".join(_SQUAD_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def plain(text: str) -> str:
    """The form that holds in any script; empty only where the text has no letter and no digit."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    whole = _INSIDE.sub("", _THOUSANDS.sub("", _without_accents(folded)))
    kept = {at for match in _KEPT.finditer(whole) for at in range(match.start(), match.end())}
    marks = "".join(c if at in kept or _is_word(c) else " " for at, c in enumerate(whole)).replace("−", "-")
    words = marks.split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    found: list[str] = []
    base = ""
    for c in unicodedata.normalize("NFD", text):
        if not unicodedata.combining(c):
            base = c
        elif _WITHOUT_ACCENTS.match(base):
            continue
        found.append(c)
    return unicodedata.normalize("NFC", "".join(found))


def _is_word(c: str) -> bool:
    # note: vowel signs of Indic and Thai are marks (M), and belong to their words.
    return c == "_" or unicodedata.category(c)[0] in "LNM"


def same(said: str, wanted: Iterable[str]) -> bool:
    """Is what was said one of the answers that count, in the form that holds in any script? Nothing said never is."""
    form = plain(said)
    return bool(form) and any(form == plain(one) for one in wanted)


def exact_match(said: str, wanted: Iterable[str]) -> bool:
    """The classic metric: equal after `squad`. Nothing said never is."""
    form = squad(said)
    return bool(form) and any(form == squad(one) for one in wanted)


def f1(said: str, wanted: Iterable[str]) -> float:
    """The best overlap of words with one of the answers, 0 to 1; of characters in scripts without spaces."""
    return max((_overlap(words(said), words(one)) for one in wanted), default=0.0)


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> float:
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted)) if common else 0.0


def words(text: str) -> list[str]:
    """The words of the plain form; in scripts without spaces each character is one."""
    return _SPACELESS.sub(r" \g<0> ", plain(text)).split()


def holds(text: str, phrase: str) -> bool:
    """Do the words of `phrase` stand in `text`, one behind the other? Nothing stands nowhere."""
    inner, outer = words(phrase), words(text)
    return bool(inner) and f" {' '.join(inner)} " in f" {' '.join(outer)} "
