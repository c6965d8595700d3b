"""Answers queries from a server that others run, over the interface of Search-R1's.

`POST URL` with `{"queries": [...], "topk": k, "return_scores": true}` is answered with `{"result": [[{"document":
{"id": ..., "contents": "TITLE\\nTEXT"}, "score": ...}, ...]]}` (`search_r1/search/retrieval_server.py`); a document may
have `title` and `text` instead. Servers of that interface hold dense indexes as well as BM25.

Whatever is not such an answer, in time, is an error: a server that is down must not read as a corpus that knows
nothing. The order is the server's scores'; equal ones are ordered by id, which many servers leave to chance.

Not covered: keys, batches of several queries. The server's corpus is its own: nothing here can tell that it changed.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from selfplay.errors import UserError
from selfplay.retrieval import Hit, Passage, RetrievalFailed
from selfplay.types import digest

SECONDS = 30.0
"""Longest that one query may take."""
MAX_BYTES = 16_000_000
"""Of the longest answer."""


class RemoteRetriever:
    """One server."""

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        """Nothing is asked yet.

        Args:
            url: `http://HOST:PORT/retrieve`.
            seconds: Longest that one query may take.

        Raises:
            UserError: `url` is no address of that kind.
        """
        if not url.startswith(("http://", "https://")):
            raise UserError(f"`{url}` is no address of a retriever", hint="for example http://127.0.0.1:8000/retrieve")
        self._url = url
        self._seconds = seconds

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """At most `k` passages, best first; see `Retriever`.

        Raises:
            UserError: `k` is below 1.
            RetrievalFailed: the server is not there, too slow, or answers something else.
        """
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least one passage")
        try:
            async with asyncio.timeout(self._seconds):
                body = await asyncio.to_thread(self._ask, query, k)
        except TimeoutError as error:
            raise self._failed(f"did not answer within {self._seconds:g} s") from error
        except (http.client.HTTPException, OSError) as error:
            raise self._failed(f"cannot be asked ({type(error).__name__})") from error
        try:
            return _hits(json.loads(body), k)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            start = body[:80].decode(errors="replace")
            raise self._failed(f"answers what is no result ({type(error).__name__}: {error}): {start!r}") from error

    async def aclose(self) -> None:
        """Nothing stays open between queries."""

    def _ask(self, query: str, k: int) -> bytes:
        ends = time.monotonic() + self._seconds
        text = query.encode("utf-8", "replace").decode()
        asked = json.dumps({"queries": [text], "topk": k, "return_scores": True}).encode()
        request = urllib.request.Request(self._url, asked, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as answer:
                if answer.status != 200:
                    raise self._failed(f"answers {answer.status}")
                body = bytearray()
                # note: `read1` comes back with what is there, so that a server that drips is left in time
                while piece := answer.read1(1 << 16):
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise self._failed(f"answers with more than {MAX_BYTES // 1_000_000} MB")
                    if time.monotonic() > ends:
                        raise TimeoutError
                return bytes(body)
        except urllib.error.HTTPError as error:
            error.close()
            raise self._failed(f"answers {error.code}") from error

    def _failed(self, what: str) -> RetrievalFailed:
        return RetrievalFailed(f"the retriever at {self._url} {what}", hint=f"is it up? curl -X POST {self._url}")


def _hits(answer: Any, k: int) -> list[Hit]:
    """The hits of an answer to one query.

    Raises:
        ValueError, TypeError, KeyError: it is not what the interface says.
    """
    results = answer["result"]
    if not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], list):
        raise ValueError("`result` holds not one list of documents")
    hits = [_hit(row) for row in results[0]]
    return sorted(hits, key=lambda hit: (-hit.score, hit.passage.id))[:k]


def _hit(row: Any) -> Hit:
    document, score = row["document"], float(row["score"])
    if not isinstance(document, dict):
        raise TypeError("`document` is no object")
    if not math.isfinite(score):
        raise ValueError(f"the score {score}")
    title, text = document.get("title"), document.get("text")
    if text is None:
        contents = document["contents"]
        if not isinstance(contents, str):
            raise TypeError("`contents` is no string")
        first, _, rest = contents.partition("\n")
        title, text = (title, contents) if title or not rest.strip() else (first.strip().strip('"'), rest)
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise TypeError("`title` or `text` is no string")
    own = document.get("id")
    name = str(own) if isinstance(own, str | int) else digest("passage", text)
    return Hit(passage=Passage(id=name, text=text, title=title or "", document="", end=len(text)), score=score)
