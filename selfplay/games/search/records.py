"""What the search game passes around: answers, questions, and who is asked.

Not here: where answers come from (`answers`), what makes a question a task (`filters`, `rag`), the game (`game`).
"""

from __future__ import annotations

from typing import Protocol

from selfplay.errors import SelfplayError
from selfplay.retrieval import Passage
from selfplay.types import record


class AskFailed(SelfplayError):
    """Who was asked broke, was too slow or said nothing that can be read: no sample, and nothing about the question."""

    exit_code = 3
    kind = "fault"


@record
class Answer:
    """A salient span of a corpus: what a question is to be written for."""

    text: str
    """As it stands in the passage."""
    kind: str
    """One of `answers.KINDS`."""
    document: str
    """The document that held it first; what is held out is held out by document."""
    passage: str
    """Id of the passage that it was found in."""
    weight: float
    """Rarer is more; above 0."""
    aliases: tuple[str, ...] = ()
    """Other forms that count as the same."""


@record
class Question:
    """What a proposer wrote, with what it saw on the way."""

    text: str
    answer: str
    aliases: tuple[str, ...]
    hops: int
    """Searches that it was asked to need."""
    queries: tuple[str, ...]
    """What the proposer searched for, in order."""
    evidence: tuple[Passage, ...]
    """The passages that it was shown, each once, in the order in which it saw them first."""
    quote: str = ""
    """The sentence that supports the answer, where the proposer quoted one."""


@record
class Said:
    """A reply of who was asked."""

    text: str
    tokens: int
    """Sampled."""
    seconds: float


class Asks(Protocol):
    """Somebody who answers a prompt: the policy itself, or a frozen judge."""

    async def ask(self, prompt: str, *, key: str) -> Said:
        """The reply to one user message. Equal prompts and keys give equal replies where the backend is deterministic.

        Raises:
            AskFailed: there is none.
        """
        ...
