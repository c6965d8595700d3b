"""Latency and recall of the word index, beside a plain OR query over the same index; time and memory of making it.

    python tests/bench/retrieval.py SOURCE... [--passages 20000 200000] [--queries 300] [--keep FOLDER [--add-only]]
    python tests/bench/retrieval.py python-docs --recombine --passages 1000000 --keep FOLDER --add-only --seconds 800

A SOURCE is what `selfplay corpus add` takes, or a dictd dictionary (`NAME.index` beside `NAME.dict.dz`). Documents are
taken in an order that is keyed by their names until there are as many passages as asked for. With `--recombine`, where
they have fewer, more are made of them: a passage each, sentences drawn from all of theirs, in which every other long
word gives place to one drawn from all their words, so that words stay about as frequent as they were; and an invented
name each, since real texts never run out of new words. Known items: each query is made of one passage, which should be
among the first ten. *rare*: the five rarest words of one of its sentences; *random*: eight of its words of four letters
or more; *sentence*: one of its sentences, whole. With `--keep`, corpora stay in FOLDER and are used again, so that
adding and asking can be measured apart; `--seconds` ends the adding with what there is by then, and the same command
again goes on from there.

`--retriever` asks another one (tantivy, dense), without the peer.

Not covered: questions as people ask them.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import os
import random
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from selfplay.retrieval import Document
from selfplay.retrieval.choosing import retriever_of
from selfplay.retrieval.fts import best
from selfplay.retrieval.sources import documents
from selfplay.retrieval.store import Corpus, path_of
from selfplay.retrieval.words import terms
from selfplay.retrieval.writing import add
from selfplay.types import digest, draw

K = 10
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
KINDS = ("rare", "random", "sentence")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LONG = re.compile(r"[A-Za-z]{5,}")
SYLLABLES = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r", "l")]
TELL = 100_000
WORDS = "words"


def dictionary(index: Path) -> Iterator[Document]:
    """The articles of a dictd dictionary."""
    packed = gzip.decompress(index.with_suffix(".dict.dz").read_bytes())
    seen = set()
    for line in index.read_text(encoding="utf-8").splitlines():
        word, *where = line.split("\t")[:3]
        start, length = (sum(DIGITS.index(c) * 64**i for i, c in enumerate(reversed(one))) for one in where)
        if (start, length) not in seen and not word.startswith("00-database"):
            seen.add((start, length))
            text = packed[start : start + length].decode("utf-8", "replace")
            yield document(f"{index.stem}/{start}", word, text)


def document(name: str, title: str, text: str) -> Document:
    return Document(id=name, title=title, digest=digest(text), pieces=lambda: (text,))


def everything(sources: Sequence[str]) -> list[Document]:
    found = [
        one
        for source in sources
        for one in (dictionary(Path(source)) if source.endswith(".index") else documents(source))
        if isinstance(one, Document)
    ]
    return sorted(found, key=lambda one: digest(one.id))


def recombined(found: Sequence[Document], *, first: int) -> Iterator[Document]:
    """Documents of a passage each, made of those that were `found`, without end, numbered from `first`."""
    texts = ["".join(one.pieces()) for one in found]
    sentences = [" ".join(one.split()) for text in texts for one in SENTENCE.split(text) if 6 <= len(one.split()) <= 40]
    words = [word for sentence in sentences for word in LONG.findall(sentence)]
    for number in itertools.count(first):
        name, title, text = mixture(random.Random(f"recombined {number}"), sentences, words)
        yield document(f"recombined/{number:07d}", f"{name} and {title}", text)


def mixture(rng: random.Random, sentences: Sequence[str], words: Sequence[str]) -> tuple[str, str, str]:
    """An invented name, a word, and a text of about 90 words that ends with the name."""
    taken: list[str] = []
    while sum(len(one.split()) for one in taken) < 75:
        one = LONG.sub(lambda old: rng.choice((old[0], rng.choice(words))), rng.choice(sentences))
        taken.append(one if one[-1] in ".!?" else f"{one}.")
    name = "".join(rng.choice(SYLLABLES) for _ in range(3)).capitalize()
    return name, rng.choice(words), f"{' '.join(taken)} This was told by {name}."


def until(found: Iterator[Document], passages: int, made: list[int], *, ends: float) -> Iterator[Document]:
    for one in found:
        if made[0] >= passages or time.monotonic() > ends:
            return
        yield one


def queries(corpus: Corpus, kind: str, count: int) -> Iterator[tuple[str, str]]:
    """(query, id of its passage)."""
    last = corpus.connection.execute("SELECT max(rowid) FROM passages").fetchone()[0]
    made = tries = 0
    while made < count and tries < 50 * count:
        tries += 1
        (passage,) = corpus.passages([draw("bench", kind, tries) % last + 1])
        sentences = [one for one in SENTENCE.split(passage.text) if 8 <= len(one.split()) <= 40]
        words = list(dict.fromkeys(re.findall(r"[A-Za-z]{4,}", passage.text)))
        if not sentences or len(words) < 16:
            continue
        sentence = sentences[draw("sentence", tries) % len(sentences)]
        made += 1
        if kind == "sentence":
            yield sentence, passage.id
        elif kind == "random":
            yield " ".join(sorted(words, key=lambda word: digest(tries, word))[:8]), passage.id
        else:
            counts = {word: frequency(corpus, word) for word in terms(sentence)}
            yield " ".join(sorted(counts, key=counts.__getitem__)[:5]), passage.id


def frequency(corpus: Corpus, word: str) -> int:
    return int(corpus.connection.execute("SELECT count(*) FROM words WHERE words MATCH ?", (word,)).fetchone()[0])


def plain(corpus: Corpus, query: str) -> list[str]:
    rows = best(corpus.connection, " OR ".join(terms(query)), K)
    return [passage.id for passage in corpus.passages([row for row, _ in rows])]


async def measure(name: str, kind: str, count: int, *, how: str) -> None:
    """A line; with the peer where the word index itself is asked."""
    corpus, began = Corpus(name), time.process_time()
    retriever = await retriever_of(how, corpus=name)
    if (opening := time.process_time() - began) > 1:
        print(f"{how}: opened in {opening:.1f} s of processor time, its index made where it was not there", flush=True)
    asked = list(queries(corpus, kind, count))
    ours: list[float] = []
    peer: list[float] = []
    right = peer_right = 0
    for query, wanted in asked:
        began = time.perf_counter()
        hits = await retriever.search(query, k=K)
        ours.append(time.perf_counter() - began)
        right += wanted in [hit.passage.id for hit in hits]
        if how != WORDS:
            continue
        began = time.perf_counter()
        ids = plain(corpus, query)
        peer.append(time.perf_counter() - began)
        peer_right += wanted in ids
    row = [f"{kind:9}", f"{len(asked):4}"]
    for seconds, found in ((ours, right), (peer, peer_right))[: 2 if peer else 1]:
        spread = statistics.quantiles(seconds, n=100)
        row += [f"{1000 * spread[49]:7.2f} / {1000 * spread[98]:7.2f} ms  recall@10 {found / len(asked):.3f}"]
    print(" | ".join(row), flush=True)
    await retriever.aclose()
    corpus.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--passages", nargs="+", type=int, default=[20_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--add-only", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--retriever", default=WORDS, help="what is asked: words, tantivy, dense")
    parser.add_argument("--recombine", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="selfplay-bench-") as scratch:
        os.environ["SELFPLAY_CACHE"] = str(options.keep or scratch)
        found: list[Document] = []
        for passages in options.passages:
            name = f"bench-{passages}"
            have = held(name)
            if have < (passages if options.recombine else 1):
                found = found or everything(options.sources)
                more = recombined(found, first=have) if options.recombine else iter(())
                new = itertools.chain(() if have else found, more)
                filled(name, new, passages - have, seconds=options.seconds, part=have)
            if not options.add_only:
                print(
                    f"p50 / p99: {options.retriever}" + (" | plain OR" if options.retriever == WORDS else ""),
                    flush=True,
                )
                for kind in options.kinds:
                    asyncio.run(measure(name, kind, options.queries, how=options.retriever))


def held(name: str) -> int:
    """Passages that the corpus has; 0 where there is none."""
    if not path_of(name).is_file():
        return 0
    with closing(Corpus(name)) as corpus:
        return corpus.info().passages


def filled(name: str, found: Iterator[Document], passages: int, *, seconds: float, part: int) -> None:
    made, began = [0], time.process_time()

    def tell(documents: int, count: int) -> None:
        if count // TELL > made[0] // TELL:
            print(f"{count} passages of {documents} documents: {spent(began)}", flush=True)
        made[0] = count

    added = add(name, f"bench-{part}", until(found, passages, made, ends=time.monotonic() + seconds), tell=tell)
    size = path_of(name).stat().st_size
    print(f"{added.documents} documents: {added.passages} passages, {size / 1e6:.0f} MB, {spent(began)}", flush=True)


def spent(began: float) -> str:
    """Processor time since then, what makes the documents included, and the most memory that was held at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return f"{time.process_time() - began:.1f} s of processor time, peak {peak:.0f} MB"


if __name__ == "__main__":
    main()
