"""Somebody honest who reads: answers from the sentence that is most like the question, by rules, and quotes it.

It finds years only, and knows that "the year after 1873" is 1874. Where no sentence shares enough words with the
question it says so. What it knows by heart is given to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from selfplay.games.search.normalise import words
from selfplay.games.search.records import Said

ENOUGH = 0.6
"""Share of the question's words that a sentence has to have."""
SMALL = frozenset({"in", "which", "year", "did", "was", "the", "a", "an", "of", "to"})
_TITLE = re.compile(r"^Doc \d+ \(Title: .*?\) ", re.MULTILINE)
_SENTENCE = re.compile(r"[^.!?]+[.!?]")


@dataclass
class Reader:
    """Implements `Asks`, and keeps what it was asked."""

    by_heart: Mapping[str, str] = field(default_factory=dict)
    """Question -> answer."""
    prompts: list[str] = field(default_factory=list)

    async def ask(self, prompt: str, *, key: str) -> Said:
        """The reply."""
        self.prompts.append(prompt)
        text = self._reply(prompt)
        return Said(text=text, tokens=len(text.split()), seconds=0.0)

    def _reply(self, prompt: str) -> str:
        question = re.findall(r"^Question: (.*)$", prompt, re.MULTILINE)[-1]
        passages = prompt.rpartition("\n\nQuestion: ")[0]
        if "Doc 1 (Title: " not in passages:
            return f"<answer>{self.by_heart.get(question, 'unknown')}</answer>"
        found = sorted(_candidates(passages, question), key=lambda one: -one[0])
        if not found:
            return "<answer>unknown</answer>"
        wanted = found if prompt.startswith("A question may have") else found[:1]
        return "\n".join(f"<quote>{quote}</quote><answer>{answer}</answer>" for _, quote, answer in wanted)


def _candidates(passages: str, question: str) -> Iterator[tuple[float, str, str]]:
    """(share of the question's words, sentence, answer)."""
    asked = {*words(question)} - SMALL
    for sentence in _SENTENCE.findall(_TITLE.sub("", passages)):
        share = len(asked & {*words(sentence)}) / len(asked)
        numbers = [one for one in re.findall(r"\b\d{4}\b", sentence) if one not in question]
        if share >= ENOUGH and numbers:
            after = re.search(r"the year after (\d{4})", sentence)
            yield share, " ".join(sentence.split()), str(int(after[1]) + 1) if after else numbers[0]
