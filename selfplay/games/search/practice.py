"""Warm-up examples of the single-turn form: a sentence with a blank is written for an answer, and filled in. Pure.

What is covered: an example of either role, by turns, as a function of (seed, index). The proposer's reply is a cloze of
its answer's own sentence (`cloze`), so that what it learns first passes every rule; the solver fills in masked spans of
a passage that is given among others (`masked`).

Not here: which seeds may be used (`game`), training (`warmup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfplay.games.search import cloze, masked
from selfplay.retrieval import Passage
from selfplay.rollout import render
from selfplay.tools.searching import shown
from selfplay.types import Example, Role, Seed, draw

TRIES = 50
"""Seeds that are tried for one example, before it is left out."""


def practice(
    seeds: Sequence[Seed], *, proposer: Role, solver: Role, seed: int, first: int, count: int
) -> tuple[Example, ...]:
    """Examples `first` to `first + count - 1` of seeds with passages; fewer only where hardly a seed has a sentence.

    Those with an even index are a proposer's, the others a solver's; a reply is bare, without tags.
    """
    passages = list({one.id: one for one in map(_own, seeds)}.values())
    made: list[Example] = []
    for index in range(first, first + count):
        if index % 2:
            made += masked.examples(
                passages, role=solver, view=_solver_view, seed=seed, first=index // 2, count=1, form=str
            )
        else:
            made += _asked(seeds, proposer, key=(seed, "practice", index))
    return tuple(made)


def _own(seed: Seed) -> Passage:
    return Passage(**seed.payload["passages"][0])


def _solver_view(question: str, passages: Sequence[Passage]) -> Mapping[str, object]:
    return {"question": question, "passages": shown(passages), "turns": 1, "hint": ""}


def _asked(seeds: Sequence[Seed], proposer: Role, *, key: tuple[object, ...]) -> list[Example]:
    """A seed's answer, and a question for it."""
    for attempt in range(TRIES if seeds else 0):
        one = seeds[draw(*key, attempt) % len(seeds)]
        question = cloze.ask(one.payload["answer"], _own(one).text)
        if question is not None:
            prompt = render(proposer, proposer_view(one, turns=1))
            return [Example(role=proposer.name, source=one.source, prompt=prompt, replies=(question,))]
    return []


def proposer_view(seed: Seed, *, turns: int) -> Mapping[str, object]:
    """The variables of a proposer's prompt; `passages` is empty where the role searches."""
    given = seed.payload.get("passages", ())
    return {
        "answer": seed.payload["answer"],
        "kind": seed.payload["kind"],
        "hops": seed.payload["hop"],
        "turns": turns,
        "passages": shown([Passage(**one) for one in given]) if given else "",
    }
