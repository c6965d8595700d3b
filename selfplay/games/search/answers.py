"""What questions are written for: salient spans of a corpus, without labels and without a model.

How: every passage is looked through for spans (`spans`), equal ones (`normalise.plain`) are one answer, which belongs
to the first document that holds it, in the order of the documents' names. An answer that more than `COMMON` of the
passages hold is none. Of the others, as many as are wanted are drawn, the rare ones rather (weight log(1 + N / df), N
passages of which df hold it), at most `PER_DOCUMENT` of one document; the draw is keyed by the corpus's digest, so that
equal corpora give equal answers. Of a corpus with more than `MAX_PASSAGES` passages an even sample is looked at: ids
are digests, so those below a bound are one.

The result lies in the cache, by the digest of the corpus. Held out is decided by document (`kept_back`): answers of one
document are on the same side. The passages themselves can be found by every player; only what is asked for is apart.

Not here: spans (`spans`), seeds of the game (`game`), questions that hide an answer in its sentence (`cloze`).

Example:
    >>> answers(Corpus("python-docs"), count=2)  # doctest: +SKIP
    (Answer(text='lru_cache', kind='identifier', document='python-docs:functools', ...), ...)
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from selfplay.cache import cache_folder
from selfplay.errors import UserError
from selfplay.games.search.normalise import plain
from selfplay.games.search.records import Answer
from selfplay.games.search.spans import KINDS as KINDS
from selfplay.games.search.spans import spans
from selfplay.retrieval.store import Corpus, said
from selfplay.types import digest, draw, record

VERSION = 1
"""Of what counts as an answer: another one, another cache."""
PER_DOCUMENT = 3
"""Most answers of one document."""
MAX_PASSAGES = 100_000
"""Passages that are looked at."""
COMMON = 0.01
"""Largest share of the passages that may hold an answer; `FEW` of them always may."""
FEW = 5
_WHOLE = 1 << 63


@record
class _Found:
    """An answer as it was met first."""

    text: str
    kind: str
    document: str
    passage: str


def answers(corpus: Corpus, *, count: int) -> tuple[Answer, ...]:
    """At most `count` answers of the corpus, in the order of the draw; from the cache where they are there.

    Raises:
        UserError: the corpus holds none.
        RetrievalFailed, RunFailed, NotReady: as `Corpus`.
    """
    path = cache_folder() / "answers" / f"{digest('answers', VERSION, corpus.info().digest, count)}.jsonl"
    known = _read(path)
    if known is None:
        known = _drawn(corpus, count=count)
        _write(path, known)
    if not known:
        raise UserError(
            f"no passage of the corpus `{corpus.name}` holds a name, number, date, title or identifier to ask for",
            hint="texts of more than a few sentences are needed: selfplay corpus add NAME SOURCE",
        )
    return known


def kept_back(of: Sequence[Answer], *, share: float) -> frozenset[str]:
    """The documents of `of` that are held out: about `share` of them, drawn by their names, and never every one."""
    documents = sorted({answer.document for answer in of}, key=lambda name: draw("held out", name))
    found = [name for name in documents if draw("held out", name) < share * _WHOLE]
    return frozenset(found[: len(documents) - 1])


def aliases_of(text: str, kind: str) -> tuple[str, ...]:
    """Other forms of an answer that count: of a dotted name its last part, where that is long enough to mean it."""
    last = text.rpartition(".")[2]
    return (last,) if kind == "identifier" and last != text and len(last) >= 6 else ()


def _drawn(corpus: Corpus, *, count: int) -> tuple[Answer, ...]:
    known = corpus.info()
    first: dict[str, _Found] = {}
    held: Counter[str] = Counter()
    total = 0
    for passage, text, document in _passages(corpus, share=MAX_PASSAGES / max(1, known.passages)):
        total += 1
        here: dict[str, _Found] = {}
        for span in spans(text):
            form = plain(span.text)
            if form:
                here.setdefault(form, _Found(text=span.text, kind=span.kind, document=document, passage=passage))
        held.update(here.keys())
        for form, one in here.items():
            first.setdefault(form, one)
    weights = {form: math.log(1 + total / held[form]) for form in first if held[form] <= max(FEW, COMMON * total)}
    order = sorted(weights, key=lambda form: (_late(known.digest, form) / weights[form], form))
    taken: Counter[str] = Counter()
    kept: list[Answer] = []
    for form in order:
        one = first[form]
        if len(kept) < count and taken[one.document] < PER_DOCUMENT:
            taken[one.document] += 1
            kept.append(_answer(one, weight=weights[form]))
    return tuple(kept)


def _late(*key: object) -> float:
    """A draw of the exponential distribution: divided by a weight, the smallest ones are a draw by weight without
    putting back (Efraimidis and Spirakis, 2006).
    """
    return -math.log((draw("answer", *key) + 1) / (_WHOLE + 1))


def _answer(one: _Found, *, weight: float) -> Answer:
    return Answer(
        text=one.text,
        kind=one.kind,
        document=one.document,
        passage=one.passage,
        weight=weight,
        aliases=aliases_of(one.text, one.kind),
    )


def _passages(corpus: Corpus, *, share: float) -> Iterator[tuple[str, str, str]]:
    """(id, text, document) of a share of the passages, in the order of documents."""
    most = bytes([255] * 17) if share >= 1 else int(share * (1 << 128)).to_bytes(16)
    query = """SELECT p.id, p.text, d.name FROM passages p JOIN documents d ON d.id = p.document
               WHERE p.id < ? ORDER BY d.name, p.id"""
    with said(corpus.path):
        for found, text, name in corpus.connection.execute(query, (most,)):
            yield found.hex(), text, name


def _read(path: Path) -> tuple[Answer, ...] | None:
    """What the cache holds; None where it holds nothing whole."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return tuple(Answer(**{**row, "aliases": tuple(row["aliases"])}) for row in rows)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, found: Sequence[Answer]) -> None:
    """Whole or not at all; a cache that cannot be written is done without."""
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found), encoding="utf-8")
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
