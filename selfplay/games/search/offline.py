"""The form without a corpus: a solver that writes its searches and what they find itself, in one reply.

SSRL (arXiv 2508.10874) trains the same: search, information and answer are the policy's own tokens. There the tokens
between `<information>` and `</information>` carry no loss, as retrieved ones would not; here all do, since the policy
sampled them, and what it remembers is what this form can teach.

What is covered: which role plays so, and its warm-up: a search for a document's title, the document's own sentence as
what was found, and the answer that is left out of the question. It teaches the form, and what train documents say.

Not here: the prompt (`roles/search_solver_offline`), what an answer is worth (`game`), the other warm-up (`practice`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfplay.games.search import cloze
from selfplay.games.search.filters import stands_in
from selfplay.games.search.practice import TRIES
from selfplay.retrieval import Passage
from selfplay.rollout import render
from selfplay.tools.searching import escaped
from selfplay.types import Example, Role, Seed, draw


def writes_its_own(solver: Role) -> bool:
    """Has it neither tools nor passages in its prompt?"""
    return solver.tools is None and re.search(r"\bpassages\b", solver.prompt) is None


def examples(seeds: Sequence[Seed], solver: Role, *, key: tuple[object, ...]) -> list[Example]:
    """One example of a seed with passages, drawn by the key; none where hardly a seed has a sentence."""
    for attempt in range(TRIES if seeds else 0):
        one = seeds[draw(*key, attempt) % len(seeds)]
        answer, own = one.payload["answer"], Passage(**one.payload["passages"][0])
        question = cloze.ask(answer, own.text)
        if question is None:
            continue
        found = next(sentence for sentence in cloze.sentences(own.text) if stands_in(sentence, answer))
        prompt = render(solver, {"question": escaped(question), "passages": "", "turns": 1, "hint": ""})
        title, told = (escaped(" ".join(text.split())) for text in (own.title, found))
        reply = f"<search>{title}</search><information>{told}</information><answer>{answer}</answer>"
        return [Example(role=solver.name, source=one.source, prompt=prompt, replies=(reply,), template=solver.template)]
    return []
