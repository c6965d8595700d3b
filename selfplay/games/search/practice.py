"""Warm-up examples of the single-turn form: a sentence with a blank is written for an answer, and filled in. Pure.

What is covered: an example of either role, by turns, as a function of (seed, index). The proposer's reply is a cloze of
its answer's own sentence (`cloze`), so that what it learns first passes every rule; the solver fills in a masked span,
one as in play, of a passage that is given among others (`masked`).

Not here: which seeds may be used (`game`), training (`warmup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from selfplay.games.search import cloze, masked
from selfplay.retrieval import Passage
from selfplay.rollout import render
from selfplay.tools.searching import shown
from selfplay.types import Example, Role, Seed, draw

TRIES = 50
"""Seeds that are tried for one example, before it is left out."""
TURNS = 3
"""Of so many examples one is a proposer's: its reply has ten times the tokens of an answer, and every token counts the
same in an update."""


def practice(
    seeds: Sequence[Seed], *, proposer: Role, solver: Role, seed: int, first: int, count: int
) -> tuple[Example, ...]:
    """Examples `first` to `first + count - 1` of seeds with passages; fewer only where hardly a seed has a sentence.

    Of each `TURNS` the first is a proposer's, the others are a solver's, who is given as many passages as in play, by
    the same searches; a reply is bare, without tags.
    """
    given = {one.payload["passage"]: [Passage(**row) for row in one.payload["passages"]] for one in seeds}
    passages, beside = [own for own, *_ in given.values()], {own.id: near for own, *near in given.values()}
    answered = partial(
        masked.examples,
        passages,
        role=solver,
        view=_solver_view,
        seed=seed,
        count=1,
        form=str,
        most=1,
        beside=beside,
        shown=max(map(len, given.values()), default=1),
    )
    made: list[Example] = []
    for index in range(first, first + count):
        if index % TURNS:
            made += answered(first=index - index // TURNS - 1)
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
            return [
                Example(
                    role=proposer.name,
                    source=one.source,
                    prompt=prompt,
                    replies=(question,),
                    template=proposer.template,
                )
            ]
    return []


def proposer_view(seed: Seed, *, turns: int) -> Mapping[str, object]:
    """The variables of a proposer's prompt; `passages` and `blanked` are empty where the role searches.

    `blanked` is `passages` with a blank wherever the answer stands.
    """
    given = [Passage(**one) for one in seed.payload.get("passages", ())]
    # note: in any case of letters, since a question that holds the answer in another one tells it as well.
    left = [
        replace(one, text=cloze.without(seed.payload["answer"], " ".join(one.text.split()), any_case=True))
        for one in given
    ]
    return {
        "answer": seed.payload["answer"],
        "kind": seed.payload["kind"],
        "hops": seed.payload["hop"],
        "turns": turns,
        "passages": shown(given) if given else "",
        "blanked": shown(left) if given else "",
    }
