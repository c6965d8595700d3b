"""Warm-up without a teacher: sentences of a corpus with one to four salient spans masked, passages given, to be filled.

What is covered: MaskSearch's retrieval-augmented mask prediction (RAMP, arXiv 2505.20285) as supervised pairs for the
single-turn solver: the passage that holds the sentence is shown among others, so what is learnt is to read, and the
form of an answer. The curriculum is theirs too: later examples have more masks. Each example is a pure function of the
passages, the seed and its index.

Not covered: searching (a play with tools has no supervised pair here), chains of thought, spans that only a model would
find.

Not here: which spans are salient (`spans`), questions with a single blank for held-out tasks (`cloze`), which passages
may be learnt from: the caller leaves held-out documents out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from selfplay.games.search.cloze import AROUND, BLANK, MAX_SENTENCE, sentences
from selfplay.games.search.filters import MAX_CHARACTERS, num_words
from selfplay.games.search.normalise import holds
from selfplay.games.search.spans import Span, spans
from selfplay.retrieval import Passage
from selfplay.rollout import render
from selfplay.types import Example, Role, draw, record

MOST = 4
"""Masks of an example."""
EACH = 500
"""Examples with one mask, then so many with two, and so on; after that all have `MOST`."""
SHOWN = 3
"""Passages that are given."""
TRIES = 50
"""Passages that are looked at for one example, before one mask less will do."""

View = Callable[[str, Sequence[Passage]], Mapping[str, object]]
"""A question and the passages given -> the variables of the solver's prompt."""
Form = Callable[[str], str]
"""An answer -> the reply that hands it over."""
Beside = Mapping[str, Sequence[Passage]]
"""A passage's id -> passages like it."""


@record
class Masked:
    """A sentence with masks, and what they hide."""

    question: str
    answers: tuple[str, ...]
    """In the order of the masks."""

    @property
    def answer(self) -> str:
        """All of them as one answer."""
        return "; ".join(self.answers)


def tagged(answer: str) -> str:
    """The form of a solver that may think before it answers."""
    return f"<answer>{answer}</answer>"


def masks_of(index: int, *, each: int = EACH, most: int = MOST) -> int:
    """How many masks example number `index` has, where a sentence allows it."""
    return min(most, 1 + index // each)


def examples(
    passages: Sequence[Passage],
    *,
    role: Role,
    view: View,
    seed: int,
    first: int,
    count: int,
    form: Form = tagged,
    each: int = EACH,
    most: int = MOST,
    beside: Beside | None = None,
    shown: int = SHOWN,
) -> list[Example]:
    """Examples `first` to `first + count - 1`; those for which no passage has a sentence to mask are left out.

    Args:
        passages: What may be learnt from, in a fixed order.
        role: The single-turn solver whose prompt is rendered.
        view: Its prompt's variables.
        seed: Keys every draw.
        form: How an answer is handed over.
        each: Examples of each number of masks.
        most: Masks of an example; one where play asks for one, else a longer warm-up teaches another form.
        beside: What else is given with a passage, by its id, before others are drawn: what a search finds beside it.
        shown: Passages that are given.
    """
    made: list[Example] = []
    for index in range(first, first + count):
        found = _example(passages, key=(seed, index), masks=masks_of(index, each=each, most=most))
        if found is None:
            continue
        passage, task = found
        near = (beside or {}).get(passage.id, ())
        given = _given(passage, [*near][: shown - 1], passages, shown=shown, key=(seed, index))
        prompt = render(role, view(task.question, given))
        source = f"{passage.document or passage.id}, {len(task.answers)} masked"
        replies = (form(task.answer),)
        made.append(Example(role=role.name, source=source, prompt=prompt, replies=replies, template=role.template))
    return made


def mask(text: str, *, masks: int, key: tuple[object, ...] = ()) -> Masked | None:
    """A sentence of `text` with so many masks, drawn by the key; None where no sentence has as many spans.

    A span is masked only where nothing like it stands elsewhere in the sentence.
    """
    order = sorted(sentences(text), key=lambda one: draw("mask", "sentence", *key, one))
    for sentence in order:
        if len(sentence) > MAX_SENTENCE:
            continue
        chosen = _chosen(sentence, masks=masks, key=key)
        if len(chosen) == masks:
            return _asked(sentence, chosen)
    return None


def _chosen(sentence: str, *, masks: int, key: tuple[object, ...]) -> list[Span]:
    """Spans to mask, in order; fewer than `masks` where there are no more, or too few words would be left."""
    drawn = sorted(spans(sentence), key=lambda one: draw("mask", "span", *key, one.start))
    kept: list[Span] = []
    for span in drawn:
        rest = _without(sentence, [*kept, span])
        alone = not any(holds(rest, one.text) for one in (*kept, span))
        if len(kept) < masks and alone and ";" not in span.text and num_words(rest) >= AROUND + len(kept) + 1:
            kept.append(span)
    return sorted(kept, key=lambda one: one.start)


def _without(sentence: str, taken: Sequence[Span]) -> str:
    """The sentence with blanks for the spans, which are numbered where there are several."""
    ordered, parts, at = sorted(taken, key=lambda one: one.start), [], 0
    for number, span in enumerate(ordered, start=1):
        parts += [sentence[at : span.start], BLANK if len(ordered) == 1 else f"{BLANK}[{number}]"]
        at = span.start + len(span.text)
    return "".join([*parts, sentence[at:]])


def _asked(sentence: str, chosen: Sequence[Span]) -> Masked | None:
    several = f", in order and with semicolons between them, at {BLANK}[1] to {BLANK}[{len(chosen)}]"
    where = f" at {BLANK}" if len(chosen) == 1 else several
    question = f'Which words are missing{where} in: "{_without(sentence, chosen)}"'
    if len(question) > MAX_CHARACTERS:
        return None
    return Masked(question=question, answers=tuple(one.text for one in chosen))


def _example(passages: Sequence[Passage], *, key: tuple[object, ...], masks: int) -> tuple[Passage, Masked] | None:
    if not passages:
        return None
    drawn = [passages[draw("mask", "passage", *key, attempt) % len(passages)] for attempt in range(TRIES)]
    for fewer in range(masks, 0, -1):
        for passage in drawn:
            task = mask(passage.text, masks=fewer, key=key)
            if task is not None:
                return passage, task
    return None


def _given(
    passage: Passage, near: Sequence[Passage], passages: Sequence[Passage], *, shown: int, key: tuple[object, ...]
) -> list[Passage]:
    """The passage among those near it and others, each once, shuffled by the key."""
    every = {one.id: one for one in (passage, *near)}
    for attempt in range(TRIES):
        if len(every) < shown:
            other = passages[draw("mask", "other", *key, attempt) % len(passages)]
            every.setdefault(other.id, other)
    return sorted(every.values(), key=lambda one: draw("mask", "order", *key, one.id))
