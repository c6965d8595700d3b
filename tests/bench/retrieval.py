"""Latency and recall of the word index on real documents, beside a plain OR query over the same index.

    python tests/bench/retrieval.py SOURCE... [--passages 20000 200000] [--queries 300] [--keep FOLDER [--add-only]]

A SOURCE is what `selfplay corpus add` takes, or a dictd dictionary (`NAME.index` beside `NAME.dict.dz`). Documents are
taken in an order that is keyed by their names until there are as many passages as asked for. Known items: each query is
made of one passage, which should be among the first ten. *rare*: the five rarest words of one of its sentences;
*random*: eight of its words of four letters or more; *sentence*: one of its sentences, whole. With `--keep`, corpora
stay in FOLDER and are used again, so that adding and asking can be measured apart.

Not covered: questions as people ask them, dense retrieval.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from selfplay.retrieval import Document
from selfplay.retrieval.fts import FtsRetriever, best
from selfplay.retrieval.sources import documents
from selfplay.retrieval.store import Corpus, path_of
from selfplay.retrieval.words import terms
from selfplay.retrieval.writing import add
from selfplay.types import digest, draw

K = 10
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
KINDS = ("rare", "random", "sentence")


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


def until(found: Sequence[Document], passages: int, made: list[int]) -> Iterator[Document]:
    for one in found:
        if made[0] >= passages:
            return
        yield one


def queries(corpus: Corpus, kind: str, count: int) -> Iterator[tuple[str, str]]:
    """(query, id of its passage)."""
    last = corpus.connection.execute("SELECT max(rowid) FROM passages").fetchone()[0]
    made = tries = 0
    while made < count and tries < 50 * count:
        tries += 1
        (passage,) = corpus.passages([draw("bench", kind, tries) % last + 1])
        sentences = [one for one in re.split(r"(?<=[.!?])\s+", passage.text) if 8 <= len(one.split()) <= 40]
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


async def measure(name: str, kind: str, count: int) -> None:
    corpus, retriever = Corpus(name), FtsRetriever(name)
    asked = list(queries(corpus, kind, count))
    ours: list[float] = []
    peer: list[float] = []
    right = peer_right = 0
    for query, wanted in asked:
        began = time.perf_counter()
        hits = await retriever.search(query, k=K)
        ours.append(time.perf_counter() - began)
        right += wanted in [hit.passage.id for hit in hits]
        began = time.perf_counter()
        ids = plain(corpus, query)
        peer.append(time.perf_counter() - began)
        peer_right += wanted in ids
    row = [f"{kind:9}", f"{len(asked):4}"]
    for seconds, found in ((ours, right), (peer, peer_right)):
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="selfplay-bench-") as scratch:
        os.environ["SELFPLAY_CACHE"] = str(options.keep or scratch)
        found: list[Document] = []
        for passages in options.passages:
            name = f"bench-{passages}"
            if not path_of(name).is_file():
                found = found or everything(options.sources)
                filled(name, found, passages)
            if not options.add_only:
                print("p50 / p99: ours | plain OR", flush=True)
                for kind in KINDS:
                    asyncio.run(measure(name, kind, options.queries))


def filled(name: str, found: Sequence[Document], passages: int) -> None:
    made = [0]

    def tell(_: int, count: int) -> None:
        made[0] = count

    added = add(name, "bench", until(found, passages, made), tell=tell)
    size = path_of(name).stat().st_size
    print(f"{len(found)} documents: {added.passages} passages, {added.seconds:.1f} s, {size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
