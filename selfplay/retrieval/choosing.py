"""Which retriever a name stands for.

empty, `words`       the corpus's own index of words (`fts`)
`tantivy`            an index of words beside it, faster (`tantivy`)
`dense`              vectors beside it, of a small model; `dense:MODEL`: of a folder's or the hub's (`dense`)
`http://HOST/...`    a server that answers `POST /retrieve` (`remote`)
`A+B`                several of them, by reciprocal rank (`fusion`)
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from selfplay.errors import UserError
from selfplay.retrieval import Retriever
from selfplay.retrieval.fts import FtsRetriever
from selfplay.retrieval.fusion import FusedRetriever
from selfplay.retrieval.remote import SECONDS, RemoteRetriever

NAMES = ("words", "tantivy", "dense", "dense:MODEL", "http://HOST:PORT/retrieve", "several with + between them")
_SERVERS = ("http://", "https://")


def parts_of(name: str) -> tuple[str, ...]:
    """The retrievers that a name stands for, at least one.

    Raises:
        UserError: one of them is none, or is named twice.
    """
    found = (name,) if name.startswith(_SERVERS) else tuple(one.strip() or "words" for one in name.split("+"))
    for one in found:
        known = one in ("words", "tantivy", "dense") or one.startswith(_SERVERS) or one.removeprefix("dense:") != one
        if not known or one == "dense:":
            raise UserError(f"`{one}` is no retriever", hint=f"one of {', '.join(NAMES)}")
    if len(set(found)) < len(found):
        raise UserError(f"the retriever `{name}` names one twice", hint="name each once")
    return found


async def retriever_of(name: str, *, corpus: str, seconds: float = SECONDS) -> Retriever:
    """The retriever `name` over `corpus`; whoever asked closes it. Making an index may take minutes.

    Raises:
        UserError, NotFound, NotReady, RunFailed: there is no such retriever or corpus, or it cannot be opened.
    """
    opened: list[Retriever] = []
    async with AsyncExitStack() as stack:
        for one in parts_of(name):
            opened.append(await asyncio.to_thread(_one, one, corpus=corpus, seconds=seconds))
            stack.push_async_callback(opened[-1].aclose)
        stack.pop_all()
    return opened[0] if len(opened) == 1 else FusedRetriever(*opened)


def _one(name: str, *, corpus: str, seconds: float) -> Retriever:
    if name.startswith(_SERVERS):
        return RemoteRetriever(name, seconds=seconds)
    if name == "tantivy":
        from selfplay.retrieval.tantivy import TantivyRetriever

        return TantivyRetriever(corpus)
    kind, _, model = name.partition(":")
    if kind == "dense":
        from selfplay.retrieval.dense import DenseRetriever

        return DenseRetriever(corpus, model=model)
    return FtsRetriever(corpus)
