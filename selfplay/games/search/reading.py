"""What a reader of passages is asked, and what its reply says.

What is covered: the prompts beside this module (`prompts/*.md`, Jinja), in which passages (`tools.searching.shown`) and
questions are data: a tag in them reads as `&lt;answer>`, so that neither can answer in the reader's place; replies with
quotes and answers; whether a quote stands in a passage, letter for letter but for white space.

Not here: what follows from an answer (`rag`), a solver's reply (`replies`), a judge's (`judge`).

Example:
    >>> read("I look. <quote>It is\\n1969.</quote><answer> 1969 </answer>")
    (Reading(answer='1969', quote='It is 1969.'),)
    >>> read("1969")
    ()
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import jinja2

from selfplay.games.search.normalise import plain
from selfplay.games.search.records import AskFailed, Asks, Said
from selfplay.retrieval import Passage
from selfplay.tools import searching
from selfplay.types import record

MAX_BLOCKS = 10
"""Answers of one reply; a reply with more lists everything, and says nothing."""
MAX_ANSWER = 500
"""Characters of the longest answer."""
Name = Literal["read", "recall", "all", "judge"]

_FOLDER = Path(__file__).parent / "prompts"
_OPENS = re.compile(r"<(?=[/|!?A-Za-z\uff5c])")
_BLOCK = re.compile(r"<(quote|answer)>((?:(?!</?(?:quote|answer)>).)*)</\1>", re.DOTALL)
_UNKNOWN = frozenset({"unknown", "not known", "none", "no answer", "i do not know", "i dont know"})


@record
class Reading:
    """One answer of a reply."""

    answer: str
    """White space made single, never empty."""
    quote: str
    """What was quoted before it; empty where nothing was."""

    @property
    def known(self) -> bool:
        """Does it claim to know?"""
        return plain(self.answer) not in _UNKNOWN


def prompt(name: Name, **given: object) -> str:
    """The prompt `name` with `given` put in, which is data already (`escaped`, `shown`)."""
    return _template(name).render(**given)


@functools.cache
def _template(name: Name) -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    return environment.from_string(source(name))


def source(name: Name) -> str:
    """The prompt `name` as it is written: a template."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


async def asked(asks: Asks, text: str, *, key: str, seconds: float) -> Said:
    """The reply to a prompt, in time and not empty.

    Raises:
        AskFailed: there is none.
    """
    try:
        async with asyncio.timeout(seconds):
            said = await asks.ask(text, key=key)
    except TimeoutError as error:
        raise AskFailed(f"there was no reply within {seconds:g} s", hint="is who is asked up?") from error
    if not said.text.strip():
        raise AskFailed("the reply was empty", hint="is who is asked up?")
    return said


def escaped(text: str) -> str:
    """The text with no tag in it: `<` before a letter or what may open a tag is `&lt;`; nor a chat template's marks."""
    return _OPENS.sub("&lt;", searching.escaped(text))


def one_line(text: str) -> str:
    """The text with every white space a single blank."""
    return " ".join(text.split())


def read(reply: str) -> tuple[Reading, ...]:
    """The answers of a reply in their order, each with the quote before it; none where it cannot be read.

    A reply cannot be read where it has no complete `<answer>`, too many of them, or one that is empty or too long. What
    stands before the last `</think>` is a thought.
    """
    found: list[Reading] = []
    quote = ""
    for match in _BLOCK.finditer(reply.rpartition("</think>")[2]):
        text = _flat(match[2])
        if match[1] == "quote":
            quote = text
            continue
        if not text or len(text) > MAX_ANSWER:
            return ()
        found.append(Reading(answer=text, quote=quote))
        quote = ""
    return tuple(found) if len(found) <= MAX_BLOCKS else ()


def quoted_from(quote: str, passages: Sequence[Passage]) -> Passage | None:
    """The first passage that the quote stands in, white space aside; None where it stands in none or is empty."""
    wanted = _flat(quote)
    return next((one for one in passages if wanted and wanted in _flat(one.text)), None)


def _flat(text: str) -> str:
    return one_line(text.replace("&lt;", "<").replace("&#91;", "["))
