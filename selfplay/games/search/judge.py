"""Does another wording mean the same answer? An optional judge, whose verdict is a word of its own or no verdict.

What is covered: one question to an `Asks`, the prompt beside this module (`prompts/judge.md`), and a verdict that has
to be the word `correct` or `incorrect` alone on the first line of the reply, without the other word after it. Anything
else is a fault: the released SSP looks for "correct" anywhere in the reply, and takes "Incorrect" for it
(`quarl/utils/llm_as_a_judge.py`).

Not covered: a judge who can be talked into a verdict. What it judges is shown as data, with no tag in it, and answers
that are no short answers are incorrect without it.

Not here: what is the same without a judge (`normalise`), who it is (`asking`).

Example:
    >>> verdict("Correct."), verdict("**Incorrect**"), verdict("The answer is correct"), verdict("correct or incorrect")
    (True, False, None, None)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfplay.games.search.reading import MAX_ANSWER, asked, escaped, one_line, prompt
from selfplay.games.search.records import AskFailed, Asks
from selfplay.types import record

SECONDS = 600.0
"""Longest that a judge may take."""
_WORD = re.compile(r"\b(?:in)?correct\b")
_MARKS = " \t\r*_`'\".!"


@record
class Judged:
    """A verdict, and what it took."""

    correct: bool
    calls: int
    """0 where nobody had to be asked."""
    tokens: int
    seconds: float


def verdict(reply: str) -> bool | None:
    """What a judge's reply decides; None where it decides nothing."""
    said = reply.rpartition("</think>")[2].strip().casefold()
    first = said.split("\n", 1)[0].strip(_MARKS)
    if first not in ("correct", "incorrect") or {*_WORD.findall(said)} != {first}:
        return None
    return first == "correct"


async def judge(
    asks: Asks, *, question: str, known: Sequence[str], said: str, key: str, seconds: float = SECONDS
) -> Judged:
    """Is what was `said` one of the `known` answers to the question, in other words?

    Raises:
        AskFailed: the judge broke, was late, or gave no verdict.
    """
    given = one_line(said)
    if not given or len(given) > MAX_ANSWER:
        return Judged(correct=False, calls=0, tokens=0, seconds=0.0)
    text = prompt(
        "judge",
        question=escaped(one_line(question)),
        known=[escaped(one_line(one)) for one in known],
        given=escaped(given),
    )
    reply = await asked(asks, text, key=key, seconds=seconds)
    decided = verdict(reply.text)
    if decided is None:
        start = one_line(reply.text)[:80]
        raise AskFailed(f"the judge gave no verdict: {start!r}", hint="it has to reply `correct` or `incorrect`")
    return Judged(correct=decided, calls=1, tokens=reply.tokens, seconds=reply.seconds)
