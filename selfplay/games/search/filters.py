"""Which questions are no tasks, by rules alone: no model is asked, and each rule has a named reason. Pure.

| reason | refused | source |
|---|---|---|
| `truncated` | the play ended at a limit | |
| `no_question`, `many_blocks`, `empty` | no complete `<question>`, too many of them, or an empty one | SSP, paper |
| `few_characters`, `many_characters` | fewer than 10 characters, more than 1,000 | SSP, code |
| `few_words` | fewer than 10 words (`words`); in scripts without spaces two characters are one | SSP, code |
| `tells_answer` | the answer or an alias stands in the question, after normalisation | SSP, paper: as a substring |
| `few_searches` | fewer different searches than `searches`, where the proposer can search | SSP, code: two |
| `same_search` | the same search twice, where `repeats` is off | SSP, code |
| `searched_answer` | the answer itself was searched for, where `blunt` is off | SSP, code: off |
| `no_evidence` | the proposer saw no passage | SSP, code |
| `answer_unseen` | none of the passages that the proposer saw holds the answer or an alias, where `seen` is on | ours |
| `no_cloze` | it is no sentence of such a passage with the answer left out, where `cloze` is on | ours |

The released rule of two searches rejects an honest question of one hop, which was told to need one: ours asks for one.
`cloze` is for models too small to read for the RAG check: what it lets through is answered by a passage, as a rule can
tell, and it lets nothing else through.

Not here: whether the question can be answered from its evidence, and only so (`rag`); copies (`duplicates`).

Example:
    >>> refusal(question, rules=Rules(), searches=True).reason  # doctest: +SKIP
    'few_words'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from selfplay.games.search import replies
from selfplay.games.search.normalise import holds, plain
from selfplay.games.search.records import Question
from selfplay.retrieval.passages import SPACELESS
from selfplay.types import record

MIN_CHARACTERS, MAX_CHARACTERS, MIN_WORDS = 10, 1_000, 10
BLANK = "____"
"""What stands in a question where words were left out."""
_QUOTED = re.compile(r'"(.*)"', flags=re.DOTALL)
"""The sentence in a question: what stands between its first and its last quotation mark."""
_SPACELESS = re.compile(f"[{SPACELESS}]")


@record
class Rules:
    """What a run may set of the filters."""

    searches: int = 1
    """Fewest different searches of a proposer that can search; the released SSP has 2."""
    repeats: bool = True
    """May a search be repeated? In the released SSP it may not."""
    blunt: bool = True
    """May the proposer search for the answer itself?"""
    words: int = MIN_WORDS
    """Fewest words; no rule of the paper's."""
    seen: bool = True
    """Must a passage that the proposer saw hold the answer? Neither the paper nor the code asks for that."""
    cloze: bool = False
    """Must it be a sentence of a seen passage with the answer left out?"""


@record
class Refusal:
    """Why a proposal is no task."""

    reason: str
    """A key of `REASONS`."""
    why: str


REASONS = {
    "truncated": "the play ended at a limit, before a question was handed over",
    "no_question": "there is no complete question",
    replies.MANY_BLOCKS: "there are too many questions to tell which one is meant",
    replies.EMPTY: "the question is empty",
    "few_characters": f"fewer than {MIN_CHARACTERS} characters",
    "many_characters": f"more than {MAX_CHARACTERS} characters",
    "few_words": "too few words",
    "tells_answer": "the answer stands in the question",
    "few_searches": "too few different searches",
    "same_search": "a search was repeated",
    "searched_answer": "the answer itself was searched for",
    "no_evidence": "the proposer saw no passage",
    "answer_unseen": "no passage that the proposer saw holds the answer",
    "no_cloze": "with the answer at its blank it is no sentence of a passage that the proposer saw",
}
"""Every reason of a rule, in the order in which they are looked at."""
UNREADABLE = frozenset({"truncated", "no_question", replies.MANY_BLOCKS, replies.EMPTY})
"""Reasons of what could not be read at all, which some rewards pay less for."""


def refusal(question: Question, *, rules: Rules, searches: bool) -> Refusal | None:
    """The first rule that the question breaks; None where it keeps all. `searches`: the proposer could search."""
    for reason, broken in _RULES.items():
        if why := broken(question, rules, searches):
            return Refusal(reason=reason, why=why)
    return None


def _characters(question: Question, rules: Rules, searches: bool) -> str:
    count = len(question.text)
    return f"the question has {count} characters, fewer than {MIN_CHARACTERS}" if count < MIN_CHARACTERS else ""


def _too_many(question: Question, rules: Rules, searches: bool) -> str:
    count = len(question.text)
    return f"the question has {count} characters, more than {MAX_CHARACTERS}" if count > MAX_CHARACTERS else ""


def _words(question: Question, rules: Rules, searches: bool) -> str:
    count = num_words(question.text)
    # note: what has few characters has few words; one rule says so.
    short = len(question.text) >= MIN_CHARACTERS and count < rules.words
    return f"the question has {count} words, fewer than {rules.words}" if short else ""


def _tells(question: Question, rules: Rules, searches: bool) -> str:
    told = next((one for one in _names(question) if stands_in(question.text, one)), None)
    return f"the question holds {told[:80]!r}" if told is not None else ""


def _few(question: Question, rules: Rules, searches: bool) -> str:
    different = len({plain(query) for query in question.queries})
    if not searches or different >= rules.searches:
        return ""
    return f"{different} different searches, fewer than {rules.searches}"


def _repeated(question: Question, rules: Rules, searches: bool) -> str:
    forms = [plain(query) for query in question.queries]
    twice = next((form for number, form in enumerate(forms) if form in forms[:number]), None)
    return f"{twice[:80]!r} was searched for twice" if twice is not None and not rules.repeats else ""


def _blunt(question: Question, rules: Rules, searches: bool) -> str:
    told = next((q for q in question.queries for name in _names(question) if stands_in(q, name)), None)
    return f"the search {told[:80]!r} holds the answer" if told is not None and not rules.blunt else ""


def _blind(question: Question, rules: Rules, searches: bool) -> str:
    return "" if question.evidence else "the proposer saw no passage"


def _unseen(question: Question, rules: Rules, searches: bool) -> str:
    if not rules.seen or not question.evidence or evidence_for(question):
        return ""
    return f"none of the {len(question.evidence)} passages that the proposer saw holds {question.answer[:80]!r}"


def _elsewhere(question: Question, rules: Rules, searches: bool) -> str:
    if not rules.cloze or restored(question):
        return ""
    where = "at its blank" if BLANK in question.text else f"at a blank, {BLANK}, of which it has none,"
    return f"with {question.answer[:80]!r} {where} it is no sentence of the passages that the proposer saw"


_RULES: dict[str, Callable[[Question, Rules, bool], str]] = {
    "few_characters": _characters,
    "many_characters": _too_many,
    "few_words": _words,
    "tells_answer": _tells,
    "few_searches": _few,
    "same_search": _repeated,
    "searched_answer": _blunt,
    "no_evidence": _blind,
    "answer_unseen": _unseen,
    "no_cloze": _elsewhere,
}
"""Reason -> why the question breaks the rule; empty where it keeps it."""


def _names(question: Question) -> Sequence[str]:
    return (question.answer, *question.aliases)


def num_words(text: str) -> int:
    """Words between spaces; in scripts without spaces two characters count as a word."""
    spaceless = len(_SPACELESS.findall(text))
    return len(_SPACELESS.sub(" ", text).split()) + spaceless // 2


def stands_in(text: str, answer: str) -> bool:
    """Do the answer's words stand in `text`? For an answer without any letter or digit, its characters."""
    return holds(text, answer) if plain(answer) else bool(answer.strip()) and answer.strip() in text


def evidence_for(question: Question) -> list[str]:
    """Ids of the seen passages that hold the answer, in their text or their title."""
    names = _names(question)
    return [p.id for p in question.evidence if any(stands_in(f"{p.title}\n{p.text}", name) for name in names)]


def restored(question: Question) -> bool:
    """Do the words around the question's blank stand in a seen passage, with the answer or an alias in its place?"""
    quoted = _QUOTED.search(question.text)
    masked = quoted[1] if quoted else question.text
    wholes = [masked.replace(BLANK, name) for name in _names(question)] if BLANK in masked else []
    return any(holds(passage.text, whole) for passage in question.evidence for whole in wholes)
