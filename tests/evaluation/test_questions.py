"""Answers that are objects, and rows that only look like a layout; the others: `tests/test_questions.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfplay.errors import UserError
from selfplay.evaluation.questions import read

ASKED = {"question": "Which team won?"}
SQUAD = {**ASKED, "id": "s", "context": "A text.", "answers": {"text": ["Denver", "Denver"], "answer_start": [1, 1]}}
TRIVIA = {
    **ASKED,
    "answer": {"value": "Denver", "normalized_value": "denver", "aliases": ["Denver Broncos", "Denver"], "type": "x"},
}
TRIVIA_ORIGINAL = {"Question": "Which team won?", "Answer": {"Value": "Denver", "Aliases": ["Denver Broncos"]}}
PASSAGES = {**ASKED, "answer": "A"}


def written(tmp_path: Path, row: Any) -> Path:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        (SQUAD, ("Denver",)),
        ({**ASKED, "answers": {"text": "Denver"}}, ("Denver",)),
        (TRIVIA, ("Denver", "Denver Broncos")),
        (TRIVIA_ORIGINAL, ("Denver", "Denver Broncos")),
        ({**ASKED, "answer": {"value": "Denver"}}, ("Denver",)),
        ({**ASKED, "answer": "A", "answer_aliases": {"value": "B", "aliases": ["C"]}}, ("A", "B", "C")),
        ({**ASKED, "answer": "A", "answer_aliases": "Bee"}, ("A", "Bee")),
    ],
)
def test_answers_in_objects(tmp_path: Path, row: Any, answers: tuple[str, ...]) -> None:
    [asked] = read(written(tmp_path, row)).asked
    assert asked.answers == answers


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ASKED, "answers": {"answer_start": [1]}}, "`answers` is neither a text nor a list of texts"),
        ({**ASKED, "answer": {}}, "`answer` is neither"),
        ({**ASKED, "answer": {"value": None, "aliases": []}}, "`answer` is neither"),
        ({**ASKED, "answer": {"value": {"value": "A"}}}, "`answer` is neither"),
        ({**ASKED, "answer": "A", "answer_aliases": {"B": 1}}, "`answer_aliases` is neither"),
        ({**ASKED, "answers": {"text": []}}, "`answers` holds no answer"),
        ({**PASSAGES, "paragraphs": ["A text.", "Another."]}, "`paragraphs` is no list of objects"),
        ({**PASSAGES, "paragraphs": {"title": ["A"]}}, "`paragraphs` is no list of objects"),
        ({**PASSAGES, "paragraphs": None}, "`paragraphs` is no list of objects"),
        ({**PASSAGES, "metadata": {"paragraphs": [["A", "b"]]}}, "`paragraphs` is no list of objects"),
        ({**PASSAGES, "context": ["A text."], "supporting_facts": [["A", 0]]}, "`context` is no list of pairs"),
        (
            {**PASSAGES, "context": [["A", ["b"]]], "supporting_facts": ["A", "B"]},
            "`supporting_facts` is no list of pairs",
        ),
        ({**PASSAGES, "context": [["A", [{"b": 1}]]], "supporting_facts": [["A", 0]]}, ""),
    ],
)
def test_what_is_no_answer_and_no_passage_is_named_by_its_line(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        read(written(tmp_path, row))
    assert f"line 1 is no question: {said}" in error.value.message
