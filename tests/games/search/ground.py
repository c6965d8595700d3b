"""A small corpus, a search game on it, and plays whose replies were written beforehand."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from selfplay.games.search.game import SearchGame
from selfplay.games.search.opening import Opening
from selfplay.games.search.options import Options
from selfplay.games.search.records import Asks
from selfplay.policy.scripted import Script, ScriptedPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.project import find_project
from selfplay.retrieval import Hit, Retriever
from selfplay.retrieval.sources import documents, name_of
from selfplay.retrieval.writing import add
from selfplay.rollout import Play, Player, talk
from selfplay.types import Role, Seed, Stage, Task, Trajectory

TOKENIZER = CharTokenizer(string.printable + "éü—“”")
TEXTS = {
    "eiffel": "The tower in Paris was built by the engineer Gustave Eiffel. It was opened to the public on 31 March "
    "1889, and stood taller than any other building. Its lift was made by the company Otis Brothers for the fair.",
    "harbour": "The harbour bridge of the town was drawn by the architect John Bradfield in great detail. Work on it "
    "began in 1923 and went on for nine years. The first train went over it with the driver Walter Simpson.",
    "cache": "A call that was made before is answered by functools.lru_cache without another look. The option maxsize "
    "holds back the growth of it, and the method cache_clear empties it. It was added by Raymond Hettinger long ago.",
    "canal": "The canal between the two seas was dug under the diplomat Ferdinand Lesseps in the desert. The first "
    "ship that passed it in 1869 was called “Pelusium”. Its tolls are set by the Canal Authority every year.",
    "poem": "The poem about the mariner was written by Samuel Coleridge in a cottage. It was printed in 1798 in the "
    "book “Lyrical Ballads” by Joseph Cottle. A later reader, Charles Lamb, defended it against the critics.",
    "comet": "The comet that returns after 76 years was computed by Edmond Halley at his desk. It was seen again on 25 "
    "December 1758 by the farmer Johann Palitzsch in Saxony. The next return was found by Max Wolf in Heidelberg.",
}
NO_CHECKS = Options(answerable=False, ablation=False, closed_book=False, unique=False, quote=False)
PROJECT = find_project(explicit=Path(__file__).parents[3])


def corpus(folder: Path, texts: Mapping[str, str] = TEXTS, *, name: str = "small") -> str:
    """A corpus of these texts, a document each."""
    folder.mkdir(parents=True, exist_ok=True)
    for title, text in texts.items():
        (folder / f"{title}.txt").write_text(text, encoding="utf-8")
    add(name, name_of(str(folder)), documents(str(folder)))
    return name


def role(name: str, **limits: Any) -> Role:
    """A shipped role in plain text, which the tokenizer of the tests can write."""
    found = PROJECT.load_role(name)
    return replace(found, template="plain", limits=replace(found.limits, **limits))


def game(
    name: str = "small",
    *,
    tools: bool = True,
    options: Options = NO_CHECKS,
    asks: Asks | None = None,
    retriever: Retriever | str = "",
    seconds: float = 30.0,
    held_out: float = 0.3,
    count: int = 40,
) -> SearchGame:
    """A game in one of its forms."""
    form = "" if tools else "_short"
    return SearchGame(
        opening=Opening(name, count=count, retriever=retriever, seconds=seconds),
        proposer=role(f"search_proposer{form}"),
        solver=role(f"search_solver{form}"),
        config_digest="c",
        options=options,
        held_out=held_out,
        asks=asks,
    )


def scripted(replies: Script) -> ScriptedPolicy:
    """A policy that says these."""
    return ScriptedPolicy(replies, tokenizer=TOKENIZER)


async def played(one: SearchGame, subject: Seed | Task, replies: Script, *, index: int = 0) -> Trajectory:
    """A play of the proposer on a seed, or of the solver on a task."""
    proposes = isinstance(subject, Seed)
    who: Role = one.proposer if proposes else one.solver
    stage: Stage = "propose" if proposes else "attempt"
    place = Play(role=who, stage=stage, step=0, subject_id=subject.id, index=index)
    view = one.proposer_view(subject) if isinstance(subject, Seed) else one.solver_view(subject)
    player = Player(policy=scripted(replies), config_digest="c", seed=0)
    if who.tools is None:
        return await player.play(place, view)
    return await talk(player, place, view, open_tools=partial(one.toolbox, who, subject), sampling=nullcontext)


async def seed_of(one: SearchGame, answer: str) -> Seed:
    """The seed of an answer."""
    return next(seed for seed in await one.seeds() if seed.payload["answer"] == answer)


class Broken:
    """A retriever that fails as it is told to."""

    def __init__(self, search: Callable[[], Any]) -> None:
        self._search = search

    async def search(self, query: str, *, k: int) -> Sequence[Hit]:
        found: Sequence[Hit] = await self._search()
        return found

    async def aclose(self) -> None:
        """Nothing to close."""
