"""Players of the search game that know what to do, players that do wrong, and the reader who checks questions.

All of them see what a model would see, and write as a model would (`tags`). An expert proposer looks for sentences that
hold its answer, and leaves the answer out: a question of one search. Of more: another name in that sentence is left out
as well, and is asked for by a sentence of another passage. An expert solver and the reader find those sentences again
and read what stands at the blank; neither knows anything of the corpus but what is shown to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from selfplay.games.search import cloze
from selfplay.games.search.filters import MAX_CHARACTERS, stands_in
from selfplay.games.search.spans import spans
from tests.experts.players import Player, in_turn

LAST = 9
"""Number of the last reply that a role of ten turns has."""
UNKNOWN = "unknown"
AROUND = 9
"""Words on each side of a blank, where there is no sentence."""
ASKED = f"Which words are missing at {cloze.BLANK} in: "
_PART = re.compile(rf'{re.escape(ASKED)}"(.*?)"(?:; call them (\[\d\])\. |$)')
_DOC = re.compile(r"^Doc \d+ \(Title: (.*?)\) (.*)$", re.MULTILINE)
_SEARCH = re.compile(r"<search>((?:(?!<search>).)*?)</search>")


@dataclass(frozen=True)
class Link:
    """A sentence with a blank."""

    text: str
    sentence: str
    """As it stands in the passage."""
    masked: str
    hides: str
    """What stands at the blank."""


def passages(said: str) -> list[str]:
    """The texts that were shown so far, each once."""
    return list(dict.fromkeys(text for _, text in _DOC.findall(said)))


def links(target: str, shown: Sequence[str]) -> Iterator[Link]:
    """Every sentence shown that can be asked for `target`, with words on both sides of the blank; then every stretch of
    `AROUND` words on each side of it, for texts that have no sentences.
    """
    for text in shown:
        for sentence in cloze.sentences(text):
            asked = cloze.ask(target, sentence)
            if asked is not None and sentence in text:
                yield from _link(text, sentence, asked.split('in: "', 1)[1].removesuffix('"'), target)
    for text in shown:
        before, found, after = text.partition(target)
        head, tail = before.split()[-AROUND:], after.split()[:AROUND]
        stretch = " ".join(head) + before[len(before.rstrip()) :] + target + after[: len(after) - len(after.lstrip())]
        stretch += " ".join(tail)
        if found and len(head) + len(tail) >= AROUND and stretch in text:
            masked = stretch.replace(target, cloze.BLANK)
            if not stands_in(masked, target):
                yield from _link(text, stretch, masked, target)


def _link(text: str, sentence: str, masked: str, target: str) -> Iterator[Link]:
    before, _, after = masked.partition(cloze.BLANK)
    if '"' not in sentence and cloze.BLANK not in after and len(before.split()) >= 2 and re.search(r"\w", after):
        yield Link(text=text, sentence=sentence, masked=masked, hides=target)


def proposer(*, turns: int = 1) -> Player:
    """Searches until it has a question, then on until its reply number `turns`, counted from 1, hands it over."""

    def reply(turn: int, said: str) -> str:
        answer = re.findall(r"^The answer: (.*)$", said, re.MULTILINE)[0]
        hops = int(re.findall(r"^Searches that the question should need: (\d+)$", said, re.MULTILINE)[0])
        shown, tried = passages(said), set(_SEARCH.findall(said))
        chain, wanted = chained(answer, hops, shown, tried)
        if chain and (turn + 1 >= turns or turn == LAST) and (wanted is None or turn == LAST):
            return f"<quote>{chain[0].sentence}</quote><question>{question(chain)}</question>"
        others = [query for link in chain for query in queries(link.masked)] or wider(answer, said)
        again = wanted if wanted is not None and wanted not in tried else ""
        return f"<search>{again or next((one for one in others if one not in tried), f'{answer} {turn}')}</search>"

    return reply


def wider(answer: str, said: str) -> list[str]:
    """Other ways to search for what holds the answer: with the titles and with the longest words that were shown."""
    titles = dict.fromkeys(title for title, _ in _DOC.findall(said))
    words = {word for text in passages(said) for word in re.findall(r"[A-Za-z]{6,}", text)}
    return [f"{answer} {more}" for more in (*titles, *sorted(words, key=lambda word: (-len(word), word)))]


def chained(answer: str, hops: int, shown: Sequence[str], tried: set[str]) -> tuple[list[Link], str | None]:
    """A chain of sentences from the answer on, and what has to be searched for to make it longer; None: nothing."""
    chain: list[Link] = []
    for link in links(answer, shown):
        chain = [link]
        if hops == 1:
            return chain, None
        bridges = [one.text for one in spans(link.sentence) if not stands_in(one.text, answer)]
        for name in (name for name in bridges if link.masked.count(name) == 1):
            for other in links(name, [text for text in shown if text != link.text and not stands_in(text, answer)]):
                more = [link, other]
                asked = question(more)
                told = len(asked) > MAX_CHARACTERS or stands_in(asked, answer)
                if not told and answered(asked, shown)[0] == answer:
                    return more, None
            if name not in tried:
                return chain, name
    return (chain, None) if chain else ([], answer)


def question(chain: Sequence[Link]) -> str:
    """What is asked, the last link first."""
    parts = []
    for number in range(len(chain) - 1, -1, -1):
        masked = chain[number].masked
        if number + 1 < len(chain):
            masked = masked.replace(chain[number + 1].hides, f"[{number + 1}]")
        parts.append(f'{ASKED}"{masked}"' + (f"; call them [{number}]. " if number else ""))
    return "".join(parts)


def queries(masked: str) -> list[str]:
    """Ways to search for a sentence with a blank, the best first."""
    words = re.sub(rf"{re.escape(cloze.BLANK)}|\[\d\]", " ", masked).split()
    half = len(words) // 2
    rare = sorted({word for word in words if len(word) > 5}, key=lambda word: (-len(word), word))
    ways = [words, words[:half], words[half:], *(rare[at : at + 3] for at in range(0, 9, 3)), *([one] for one in rare)]
    return [" ".join(way)[:900] for way in ways if way]


def filled(masked: str, shown: Sequence[str]) -> str | None:
    """What stands at the blank where one of the texts has the sentence."""
    return next(iter(fillings(masked, shown)), None)


def fillings(masked: str, shown: Sequence[str]) -> dict[str, str]:
    """What stands at the blank -> the sentence that says so."""
    before, blank, after = masked.partition(cloze.BLANK)
    if not blank:
        return {}
    sought = re.compile(f"{re.escape(before)}(.{{1,80}}?){re.escape(after)}")
    found = (match for text in shown if (match := sought.search(text)))
    return {match[1]: match[0] for match in found}


def answered(asked: str, shown: Sequence[str]) -> tuple[str | None, str]:
    """The answer to a question of `question`, as far as it was shown; and the part that is still to be found."""
    known: dict[str, str] = {}
    last = ""
    for masked, mark in _PART.findall(asked):
        for name, fill in known.items():
            masked = masked.replace(name, fill)
        last = filled(masked, shown) or ""
        if not last:
            return None, masked
        known[mark] = last
    return last or None, ""


def solver(*, turns: int = 1) -> Player:
    """Searches for each part of the question, then on until its reply number `turns` hands the answer over."""

    def reply(turn: int, said: str) -> str:
        asked = re.findall(r"^Question: (.*)$", said, re.MULTILINE)[0]
        shown, tried = passages(said), set(_SEARCH.findall(said))
        answer, missing = answered(asked, shown)
        if turn == LAST or (answer is not None and turn + 1 >= turns):
            return f"<answer>{answer or UNKNOWN}</answer>"
        masked = missing or _PART.findall(asked)[-1][0]
        return (
            f"<search>{next((one for one in queries(masked) if one not in tried), f'{turn} {masked}'[:900])}</search>"
        )

    return reply


def reader(prompt: str) -> str:
    """What somebody says who reads passages, and knows nothing else."""
    asked = re.findall(r"^Question: (.*)$", prompt, re.MULTILINE)[-1]
    shown = passages(prompt)
    answer, _ = answered(asked, shown)
    if answer is None:
        return f"<answer>{UNKNOWN}</answer>"
    masked = _PART.findall(asked)[-1][0]
    if "[" in masked or not prompt.startswith("A question may have"):
        sentence = next((one for text in shown for one in cloze.sentences(text) if answer in one), "")
        every = {answer: next(iter(fillings(masked, shown).values()), sentence)}
    else:
        every = fillings(masked, shown)
    return "\n".join(f"<quote>{quote}</quote><answer>{one}</answer>" for one, quote in every.items())


def _told(template: str) -> Player:
    """Searches once, then says this of the answer."""

    def reply(turn: int, said: str) -> str:
        answer = re.findall(r"^The answer: (.*)$", said, re.MULTILINE)[0]
        return f"<search>{answer}</search>" if turn == 0 else template.replace("ANSWER", answer)

    return reply


_LONG = "Which of the many things that may be found in here is meant by nobody at all"
PROPOSERS: Mapping[str, tuple[Player, str]] = {
    "silent": (in_turn("I would rather talk about the weather."), "no_question"),
    "looper": (in_turn("<search>weather</search>"), "truncated"),
    "unclosed": (in_turn("<question>What is it"), "no_question"),
    "twice": (in_turn("<search>a</search><search>b</search>"), "no_question"),
    "hasty": (in_turn(f"<question>{_LONG}?</question>"), "few_searches"),
    "teller": (_told(f"<question>{_LONG}, which is of course ANSWER?</question>"), "tells_answer"),
    "brief": (_told("<question>What is it then?</question>"), "few_words"),
    "liar": (
        _told(f"<quote>Nobody knows ANSWER in here at all.</quote><question>{_LONG}?</question>"),
        "quote_not_found",
    ),
    "vague": (_told(f"<question>{_LONG}?</question>"), "not_answerable"),
}
"""Who proposes what is no task, and why it is none."""
SOLVERS: Mapping[str, tuple[Player, str]] = {
    "idle": (in_turn("<answer>unknown</answer>"), "wrong"),
    "looper": (in_turn("<search>weather</search>"), "truncated"),
    "lister": (in_turn("".join(f"<answer>{year}</answer>" for year in range(1800, 1820))), "no_answer"),
    "injected": (in_turn("<information>x</information>"), "no_answer"),
}
"""Who does not find the answer, and how that ends."""
