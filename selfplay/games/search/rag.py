"""Is a proposer's question a task? The checks that ask somebody and search, each of which can only refuse.

What is covered, in this order, the cheap ones first; the first that refuses is the last that is made:

    quote       the sentence that the proposer quoted stands in the corpus and holds the answer
    closed_book asked without passages, the answer is not given: there is something to search for
    unique      what a search for the question finds supports no other answer
    answerable  read from what the proposer saw, among noise and shuffled, the answer is given; and, where the proposer
                quoted nothing, with a sentence that stands there
    ablation    the same without the passages that hold the answer: the answer is lost

`answerable` is SSP's RAG check (arXiv 2510.18821); its four noisy documents are four documents
in the paper and what four other proposers saw in the released code (`quarl/utils/problem_extraction.py`): `noise_kind`
says which. The others are what that check cannot see: its Appendix E has a question with several right answers.

Nothing is accepted by default. A reply that cannot be read refuses the question or is a fault, as `Rules.unreadable`
says; an answer that is not known refuses `answerable`; who breaks, is late or says nothing is a fault, and so is a
retriever's failure.

Not covered: whether a quote proves what it holds; that a reader who does not know still guesses right.

Not here: rules that need nobody (`filters`), prompts and replies (`reading`), who is asked (`asking`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from selfplay.games.search.filters import stands_in
from selfplay.games.search.judge import judge
from selfplay.games.search.normalise import exact_match, holds, same, words
from selfplay.games.search.reading import Reading, asked, escaped, one_line, prompt, quoted_from, read
from selfplay.games.search.records import AskFailed, Asks, Question
from selfplay.retrieval import Passage, RetrievalFailed, Retriever
from selfplay.tools.searching import shown
from selfplay.types import digest, draw, record

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "valid": "every check that was asked for held",
        "no_quote": "nobody quoted a sentence that supports the answer",
        "quote_not_found": "the quoted sentence stands in no passage",
        "quote_without_answer": "the quoted sentence does not hold the answer, or is nothing but the answer",
        "no_key_passage": "no passage that the proposer saw holds the answer",
        "known_without_search": "the answer is given without any passage",
        "not_unique": "a search for the question supports another answer",
        "not_answerable": "the passages do not lead to the answer",
        "not_lost": "the answer is still given when the passages that hold it are taken away",
        "unreadable": "a reply could not be read",
    }
)
"""Why a question is refused."""
QUOTE_WORDS = 3
"""Words that a supporting sentence has beside the answer, at least."""


@record
class Rules:
    """Which checks are made, and how."""

    answerable: bool = True
    noise: int = 4
    """Trajectories or passages of noise: 0, 1, 4 or 7 in the paper."""
    noise_kind: Literal["trajectories", "passages"] = "trajectories"
    """All that another proposer saw counts as one, or each passage does."""
    closed_book: bool = True
    ablation: bool = True
    unique: bool = True
    found: int = 3
    """Passages that the search of `unique` asks for."""
    quote: bool = True
    unreadable: Literal["refuse", "fault"] = "fault"
    """What a reply that cannot be read is: a judge's is a fault; a policy that reads for itself may be refused."""
    seconds: float = 600.0
    """Longest that one reply or one search may take."""


@record
class Checked:
    """What the checks decided about a question."""

    passed: bool
    reason: str
    """One of `REASONS`."""
    why: str
    """One sentence that a person can read."""
    evidence: Mapping[str, Any]
    """Check -> `outcome` (`passed` or `refused`), `calls`, `tokens`, `seconds`, and what was seen; of the checks that
    were made, in their order. JSON."""


class _Refused(Exception):
    """A check did not hold."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


async def examine(
    question: Question,
    *,
    asks: Asks,
    retriever: Retriever,
    noise: Sequence[Sequence[Passage]],
    rules: Rules,
    key: str,
    judged_by: Asks | None = None,
) -> Checked:
    """Make the checks of `rules`; a pure function of its arguments where who is asked is deterministic.

    Args:
        question: What the proposer wrote and saw.
        asks: Who reads: the policy itself, or a frozen model.
        retriever: Of the corpus that the question is about.
        noise: What other proposers saw, a sequence each; as many are drawn as the rules say, or all there are.
        rules: Which checks.
        key: Of the proposal; keys every order and draw.
        judged_by: Who says whether another wording of the answer counts; None: only what is the same after
            normalisation does.

    Raises:
        AskFailed: somebody who was asked broke, was late, said nothing, or nothing that can be read where that is a
            fault (`Rules.unreadable`).
        RetrievalFailed: the corpus did not answer.
    """
    exam = _Exam(
        question=question, asks=asks, retriever=retriever, noise=noise, rules=rules, key=key, judged_by=judged_by
    )
    for name, check in exam.checks():
        row = exam.begin(name)
        began = time.monotonic()
        try:
            await check()
        except _Refused as refused:
            row["outcome"] = "refused"
            return Checked(passed=False, reason=refused.reason, why=refused.why, evidence=exam.evidence)
        finally:
            row["seconds"] = time.monotonic() - began
    return Checked(passed=True, reason="valid", why=REASONS["valid"], evidence=exam.evidence)


@dataclass(slots=True, kw_only=True)
class _Exam:
    """One question under examination."""

    question: Question
    asks: Asks
    retriever: Retriever
    noise: Sequence[Sequence[Passage]]
    rules: Rules
    key: str
    judged_by: Asks | None
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    check: str = ""
    """The one that is under way."""

    @property
    def golds(self) -> tuple[str, ...]:
        return (self.question.answer, *self.question.aliases)

    @property
    def row(self) -> dict[str, Any]:
        """What is known of the check that is under way."""
        return self.evidence[self.check]

    def checks(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Those that the rules ask for, in order."""
        rules = self.rules
        # note: where the proposer quoted nothing, the reader of `answerable` has to.
        quote = rules.quote and (bool(self.question.quote) or not rules.answerable)
        every: list[tuple[bool, str, Callable[[], Awaitable[None]]]] = [
            (quote, "quote", self._quote),
            (rules.closed_book, "closed_book", self._closed_book),
            (rules.unique, "unique", self._unique),
            (rules.answerable, "answerable", self._answerable),
            (rules.ablation, "ablation", self._ablation),
        ]
        return [(name, check) for wanted, name, check in every if wanted]

    def begin(self, name: str) -> dict[str, Any]:
        """The row of the check `name`, which is under way from now on."""
        self.check = name
        self.evidence[name] = {"outcome": "passed", "calls": 0, "tokens": 0}
        return self.row

    async def _quote(self) -> None:
        quote = self.question.quote
        if not quote:
            raise _Refused("no_quote", "the proposer quoted no sentence that supports the answer")
        passages: Sequence[Passage] = self.question.evidence
        if quoted_from(quote, passages) is None:
            passages = await self._search(quote)
        self._supported(quote, passages)

    def _supported(self, quote: str, passages: Sequence[Passage]) -> None:
        """Does the quote stand in one of the passages, and hold the answer with something beside it?"""
        found = quoted_from(quote, passages)
        if found is None:
            raise _Refused("quote_not_found", f"no passage has the quoted words {_short(quote)!r}")
        self.row["quoted"] = found.id
        if not any(_says(quote, gold) for gold in self.golds):
            why = f"the quoted words {_short(quote)!r} do not say {self.question.answer!r}"
            raise _Refused("quote_without_answer", why)

    async def _closed_book(self) -> None:
        for given in await self._read(()):
            if await self._gives(given):
                raise _Refused("known_without_search", f"{given.answer!r} is answered without any passage")

    async def _unique(self) -> None:
        found = await self._search(self.question.text)
        self.row["passages"] = len(found)
        for given in await self._read(found, every=True) if found else ():
            sure = given.known and _says(given.quote, given.answer) and quoted_from(given.quote, found) is not None
            if sure and not self._like_gold(given.answer) and not await self._right(given):
                why = f"{given.answer!r} is another answer, which {_short(given.quote)!r} supports"
                raise _Refused("not_unique", why)

    async def _answerable(self) -> None:
        *_, given = await self._read(self._among_noise(self.question.evidence))
        if not await self._right(given):
            why = f"the passages led to {given.answer!r}, and {self.question.answer!r} was wanted"
            raise _Refused("not_answerable", why)
        if self.rules.quote and not self.question.quote:
            if not given.quote:
                raise _Refused("no_quote", "the answer was given without a sentence that supports it")
            self._supported(given.quote, self.question.evidence)

    async def _ablation(self) -> None:
        if not any(self._holds(one) for one in self.question.evidence):
            why = f"no passage that the proposer saw holds {self.question.answer!r}: there is nothing to take away"
            raise _Refused("no_key_passage", why)
        left = [one for one in self._among_noise(self.question.evidence) if not self._holds(one)]
        for given in await self._read(left):
            if await self._gives(given):
                raise _Refused("not_lost", f"{given.answer!r} is still given without the passages that hold it")

    async def _read(self, passages: Sequence[Passage], *, every: bool = False) -> tuple[Reading, ...]:
        """What the reader answers from the passages, at least one; with `every`, all the answers that there are."""
        name: Literal["recall", "all", "read"] = "recall" if not passages else "all" if every else "read"
        given = {"passages": shown(passages)} if passages else {}
        text = prompt(name, question=escaped(one_line(self.question.text)), **given)
        said = await asked(self.asks, text, key=digest("rag", self.key, self.check, "read"), seconds=self.rules.seconds)
        self._count(1, said.tokens)
        found = read(said.text)
        self.row["said"] = [_short(one.answer) for one in found]
        if not found:
            why = f"the reply of `{self.check}` has no answer that can be read: {_short(said.text)!r}"
            if self.rules.unreadable == "fault":
                raise AskFailed(why, hint="who reads has to write <answer>...</answer>")
            raise _Refused("unreadable", why)
        return found

    async def _search(self, query: str) -> list[Passage]:
        try:
            async with asyncio.timeout(self.rules.seconds):
                return [hit.passage for hit in await self.retriever.search(query, k=self.rules.found)]
        except TimeoutError as error:
            raise RetrievalFailed(
                f"the corpus did not answer within {self.rules.seconds:g} s", hint="is the retriever up?"
            ) from error

    def _count(self, calls: int, tokens: int) -> None:
        self.row["calls"] += calls
        self.row["tokens"] += tokens

    async def _right(self, given: Reading) -> bool:
        """Is it the answer?"""
        if same(given.answer, self.golds) or exact_match(given.answer, self.golds):
            return True
        if self.judged_by is None or not given.known:
            return False
        decided = await judge(
            self.judged_by,
            question=self.question.text,
            known=self.golds,
            said=given.answer,
            key=digest("rag", self.key, self.check, "judge", given.answer),
            seconds=self.rules.seconds,
        )
        self._count(decided.calls, decided.tokens)
        return decided.correct

    async def _gives(self, given: Reading) -> bool:
        """Does it hold the answer, whatever else it says?"""
        return any(holds(given.answer, gold) for gold in self.golds) or await self._right(given)

    def _like_gold(self, answer: str) -> bool:
        """Is it more or less of the answer's own words: `Smith` for `George Smith`?"""
        said = {*words(answer)}
        return any(said <= {*words(gold)} or said >= {*words(gold)} for gold in self.golds)

    def _holds(self, passage: Passage) -> bool:
        text = f"{passage.title}\n{passage.text}"
        return any(stands_in(text, gold) for gold in self.golds)

    def _among_noise(self, evidence: Sequence[Passage]) -> list[Passage]:
        """The evidence and the noise, each passage once, shuffled by the key."""
        own = {one.id for one in evidence}
        groups = [[one for one in group if one.id not in own] for group in self.noise]
        if self.rules.noise_kind == "passages":
            groups = [[one] for one in {one.id: one for group in groups for one in group}.values()]
        drawn = sorted(filter(None, groups), key=lambda group: self._drawn("noise", *(one.id for one in group)))
        drawn = drawn[: self.rules.noise]
        every = {one.id: one for group in (evidence, *drawn) for one in group}
        self.row.update(noise=len(drawn), passages=len(every))
        return sorted(every.values(), key=lambda one: self._drawn("order", one.id))

    def _drawn(self, *what: str) -> tuple[int, tuple[str, ...]]:
        return draw("rag", self.key, *what), what


def _says(quote: str, answer: str) -> bool:
    """Does the quote hold the answer, and enough words beside it to be a sentence about it?"""
    return holds(quote, answer) and len(words(quote)) >= len(words(answer)) + QUOTE_WORDS


def _short(text: str) -> str:
    flat = one_line(text)
    return flat if len(flat) <= 120 else flat[:119] + "…"
