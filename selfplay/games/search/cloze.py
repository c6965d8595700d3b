"""Questions without a model: a sentence of a passage with the answer left out.

They are the held-out and dev tasks of the game, and what a small model is warmed up with. A cloze asks for less than a
question of a proposer does: the words around the blank stand in the passage as they are, so who finds the passage has
only to read. What is measured with them says so.

Not here: spans masked by their number (`masked`), which answers there are (`answers`).

Example:
    >>> ask("LRU", "lru_cache keeps the last calls, by a rule called LRU, up to maxsize.")
    'Which words are missing at ____ in: "lru_cache keeps the last calls, by a rule called ____, up to maxsize."'
"""

from __future__ import annotations

import re

from selfplay.games.search.filters import BLANK as BLANK
from selfplay.games.search.filters import MAX_CHARACTERS, MIN_WORDS, num_words, stands_in

AROUND = 6
"""Words that a sentence has beside its blank, at least."""
MAX_SENTENCE = 400
"""Characters of a sentence that is asked about."""
_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n\s*\n")


def ask(answer: str, passage: str) -> str | None:
    """The question for the first sentence that holds the answer; None where none can be asked about.

    The answer stands nowhere else in the sentence, under any form that counts as the same.
    """
    for sentence in sentences(passage):
        masked = _masked(sentence, answer)
        if masked is not None:
            question = f'Which words are missing at {BLANK} in: "{masked}"'
            if num_words(question) >= MIN_WORDS and len(question) <= MAX_CHARACTERS:
                return question
    return None


def without(answer: str, text: str, *, any_case: bool = False) -> str:
    """The text with a blank wherever the answer stands: as it is written, or in capital and small letters alike."""
    return re.sub(_edged(answer), BLANK, text, flags=re.IGNORECASE if any_case else 0)


def sentences(passage: str) -> list[str]:
    """Of a text, each on one line, in order."""
    return [" ".join(part.split()) for part in _ENDS.split(passage) if part.strip()]


def _masked(sentence: str, answer: str) -> str | None:
    masked = without(answer, sentence)
    if len(sentence) > MAX_SENTENCE or masked == sentence:
        return None
    return masked if num_words(masked) >= AROUND + 1 and not stands_in(masked, answer) else None


def _edged(answer: str) -> str:
    return rf"(?<!\w){re.escape(' '.join(answer.split()))}(?!\w)"
