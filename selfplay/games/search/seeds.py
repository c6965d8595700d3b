"""The seeds of the search game: an answer each, with the passages that a single turn is given, and noise of others.

Not here: which answers (`answers`), the corpus (`opening`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from selfplay.games.search.answers import kept_back
from selfplay.games.search.opening import Opened, Opening
from selfplay.games.search.options import Options
from selfplay.games.search.records import Answer
from selfplay.retrieval import Passage
from selfplay.types import Seed, Split, digest, draw

NAME = "search"
_AT_ONCE = 8
"""Searches under way at the same time."""
_DRAWS = 4
"""Draws for each piece of noise: fewer pieces only where there are hardly more answers than that."""


class Grounds:
    """The seeds of one corpus, made once."""

    def __init__(self, opening: Opening, *, options: Options, held_out: float, given: bool) -> None:
        """`given`: seeds carry passages, since nobody searches."""
        self._opening = opening
        self._options = options
        self._held_out = held_out
        self._given = given
        self._seeds: tuple[Seed, ...] | None = None
        self._lock = asyncio.Lock()

    @property
    def known(self) -> Sequence[Seed]:
        """The seeds, which `seeds` gave before."""
        assert self._seeds is not None, "seeds() comes first"
        return self._seeds

    async def seeds(self) -> Sequence[Seed]:
        """Every seed, in the order of the answers."""
        async with self._lock:
            if self._seeds is None:
                self._seeds = await self._made()
            return self._seeds

    async def _made(self) -> tuple[Seed, ...]:
        opened = await self._opening.opened()
        own = await self._opening.passages([answer.passage for answer in opened.answers])
        held_out = kept_back(opened.answers, share=self._held_out)
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(answer: Answer) -> Seed:
            first = own[answer.passage]
            given: Sequence[Passage] = ()
            if self._given:
                async with room:
                    given = await self._about(answer.text, first, opened=opened)
            split: Split = "held_out" if answer.document in held_out else "train"
            return self._seed(answer, title=first.title, given=given, opened=opened, split=split)

        return tuple(await asyncio.gather(*(one(answer) for answer in opened.answers)))

    def _seed(self, answer: Answer, *, title: str, given: Sequence[Passage], opened: Opened, split: Split) -> Seed:
        name = digest("seed", NAME, opened.digest, answer.text, answer.document)
        payload: dict[str, Any] = {
            "answer": answer.text,
            "kind": answer.kind,
            "aliases": list(answer.aliases),
            "document": answer.document,
            "title": title,
            "passage": answer.passage,
            "weight": answer.weight,
            "hop": 1 + draw("hop", name) % self._options.hops,
        }
        if given:
            payload["passages"] = [asdict(passage) for passage in given]
        return Seed(
            id=name,
            game=NAME,
            source=f"{answer.document}: {answer.text}",
            payload=payload,
            split=split,
        )

    async def own(self, seed: Seed) -> Passage:
        """The passage that the seed's answer was found in.

        Raises:
            RetrievalFailed: the corpus has it no more.
        """
        if given := seed.payload.get("passages"):
            return Passage(**given[0])
        name = str(seed.payload["passage"])
        return (await self._opening.passages([name]))[name]

    async def noise(self, seed: Seed, *, key: str, count: int) -> Sequence[Sequence[Passage]]:
        """What a search for each of `count` answers of other documents of the same side finds, drawn by `key`.

        Raises:
            RetrievalFailed: a search failed.
        """
        opened = await self._opening.opened()
        known = [one for one in self.known if one.split == seed.split]
        others = [one for one in known if one.payload["document"] != seed.payload["document"]]
        drawn: dict[str, Seed] = {}
        for attempt in range(_DRAWS * count if others else 0):
            one = others[draw("noise", key, attempt) % len(others)]
            if len(drawn) < count:
                drawn.setdefault(one.id, one)
        own = [await self.own(one) for one in drawn.values()]
        pairs = zip(drawn.values(), own, strict=True)
        return [await self._about(one.payload["answer"], first, opened=opened) for one, first in pairs]

    async def _about(self, answer: str, own: Passage, *, opened: Opened) -> list[Passage]:
        """The passage that the answer was found in, and what a search for it finds beside."""
        hits = await opened.retriever.search(answer, k=self._options.top_k)
        beside = [hit.passage for hit in hits if hit.passage.id != own.id]
        return [own, *beside][: self._options.top_k]
