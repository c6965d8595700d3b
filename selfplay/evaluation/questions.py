"""Files of questions with golden answers, one JSON object a line, read as their makers wrote them.

| layout | question | answers | passages that the answer follows from |
|---|---|---|---|
| FlashRAG's and Search-R1's of all these | `question` | `golden_answers`, a list | in `metadata` |
| NQ (open) | `question` | `answer`, a list | |
| SQuAD | `question` | `answers`, an object whose `text` is a list | |
| TriviaQA | `question`, `Question` | `answer`, `Answer`: an object of `value`, `aliases` (`Value`, `Aliases`) | |
| HotpotQA, 2WikiMultihopQA | `question` | `answer`, a text | those of `context` in `supporting_facts` |
| MuSiQue | `question` | `answer`, `answer_aliases` | those of `paragraphs` with `is_supporting` |
| Bamboogle | `Question` | `Answer` | |

`context` and `supporting_facts` are lists of pairs (the original files) or objects of lists (Hugging Face's and
FlashRAG's, whose sentences are `sentences` or `content`). A row of MuSiQue with `answerable` false is no question, and
is counted. A file that is one JSON array, as HotpotQA's and 2Wiki's originals are, is read as well.

Whatever is wrong is said with the number of its line (of its row in an array). Not here: who answers (`answering`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.errors import NotReady, UserError
from selfplay.evaluation.rows import rows_of
from selfplay.retrieval import Passage
from selfplay.types import digest, record

_OBJECTS = (("text",), ("value", "aliases"), ("Value", "Aliases"))
"""Keys of the texts in answers that are objects; the first one must be there. Its other keys are no answers."""
_HINT = 'each line is a JSON object such as {"question": "...", "golden_answers": ["..."]}'


@record
class Asked:
    """One question."""

    id: str
    """The file's own, or a digest of the question and its answers."""
    question: str
    answers: tuple[str, ...]
    """At least one; any of them counts."""
    support: tuple[Passage, ...]
    """The passages that the file says the answer follows from; empty where it does not say."""


@record
class Questions:
    """What a file holds."""

    asked: tuple[Asked, ...]
    """In the file's order, each id once."""
    unanswerable: int
    """Rows that say of themselves that they have no answer."""


def is_questions(path: Path) -> bool:
    """Does the file's first row look like a question? False where it cannot be read at all."""
    try:
        _, row = next(rows_of(path, hint=_HINT))
    except (UserError, NotReady, StopIteration):
        return False
    return isinstance(row, dict) and ("question" in row or "Question" in row) and "schema" not in row


def read(path: Path) -> Questions:
    """The questions in `path`.

    Raises:
        NotFound: there is no such file.
        NotReady: it cannot be read.
        UserError: it holds no question, or a line that is none; its number is named.
    """
    found: dict[str, Asked] = {}
    unanswerable = 0
    for number, row in rows_of(path, hint=_HINT):
        try:
            asked = _asked(row)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{path}, line {number} is no question: {what}", hint=_HINT) from error
        if asked is None:
            unanswerable += 1
            continue
        before = found.setdefault(asked.id, asked)
        if before != asked:
            raise UserError(f"{path}, line {number}: the id {asked.id} is another question's", hint="give it its own")
    if not found:
        raise UserError(f"{path} holds no question that has an answer", hint=_HINT)
    return Questions(asked=tuple(found.values()), unanswerable=unanswerable)


def _asked(row: Any) -> Asked | None:
    """A row's question; None where it has no answer by its own account.

    Raises:
        ValueError, TypeError, KeyError, IndexError: it is none.
    """
    if not isinstance(row, dict):
        raise TypeError("it is no JSON object")
    if row.get("answerable") is False:
        return None
    question = row["Question"] if "Question" in row else row["question"]
    if not isinstance(question, str) or not question.strip():
        raise ValueError("`question` is no text, or empty")
    answers = _answers(row)
    own = row.get("id", row.get("_id"))
    metadata = row.get("metadata")
    support = _support(row) or (_support(metadata) if isinstance(metadata, dict) else ())
    name = str(own) if isinstance(own, str | int) else digest("question", question, list(answers))
    return Asked(id=name, question=question.strip(), answers=answers, support=support)


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The answers that count, each once."""
    key = next((name for name in ("golden_answers", "answer", "Answer", "answers") if name in row), None)
    if key is None:
        raise KeyError("`golden_answers` or `answer`")
    every = [*_texts(row[key], key), *_texts(row.get("answer_aliases", []), "answer_aliases")]
    found = tuple(dict.fromkeys(one.strip() for one in every if one.strip()))
    if not found:
        raise ValueError(f"`{key}` holds no answer")
    return found


def _texts(given: Any, key: str) -> list[str]:
    """The texts of a text, of a list of them, or of an object as SQuAD and TriviaQA have them."""
    parts = [given]
    if isinstance(given, dict):
        names = next((names for names in _OBJECTS if names[0] in given), ())
        parts = [given[name] for name in names if name in given] or [None]
    every = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    if not all(isinstance(one, str) for one in every):
        raise TypeError(f"`{key}` is neither a text nor a list of texts")
    return every


def _support(row: Mapping[str, Any]) -> tuple[Passage, ...]:
    """The passages that the answer follows from, as the row marks them; empty where it does not."""
    if "paragraphs" in row:
        every = row["paragraphs"]
        if not isinstance(every, list) or not all(isinstance(one, dict) for one in every):
            raise TypeError("`paragraphs` is no list of objects")
        marked = [one for one in every if one.get("is_supporting")]
        return tuple(_passage(str(one["title"]), str(one["paragraph_text"])) for one in marked)
    if "context" not in row or "supporting_facts" not in row:
        return ()
    wanted = {title for title, _ in _pairs(row, "supporting_facts", ("sent_id",))}
    context = _pairs(row, "context", ("sentences", "content"))
    return tuple(_passage(title, "".join(_spaced(texts))) for title, texts in context if title in wanted)


def _pairs(row: Mapping[str, Any], key: str, names: Sequence[str]) -> list[tuple[str, Any]]:
    """(title, what belongs to it), of a list of pairs or of an object of two lists."""
    value = row[key]
    if isinstance(value, dict):
        other = next((value[name] for name in names if name in value), None)
        if other is None:
            raise KeyError(f"`{'` or `'.join(names)}` beside `title`")
        return list(zip(map(str, value["title"]), other, strict=True))
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) > 1 for one in value):
        raise TypeError(f"`{key}` is no list of pairs")
    return [(str(one[0]), one[1]) for one in value]


def _spaced(sentences: Any) -> Iterator[str]:
    """The sentences of a paragraph, which may carry the space between them or not."""
    if isinstance(sentences, str):
        sentences = [sentences]
    for number, one in enumerate(sentences):
        yield one if number == 0 or str(one)[:1].isspace() else f" {one}"


def _passage(title: str, text: str) -> Passage:
    return Passage(id=digest("passage", title, text), text=text, title=title, document="", end=len(text))
