"""Files of questions, row by row as their makers write them; what is no question is named by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfplay.errors import NotFound, UserError
from selfplay.evaluation.questions import Asked, is_questions, read

NQ = {"question": "where did they film hot tub time machine", "answer": ["Fernie Alpine Resort", "Fernie"]}
FLASHRAG = {"id": "test_0", "question": "who got the first nobel prize in physics", "golden_answers": ["Röntgen"]}
PARAGRAPHS = [
    ["Ed Wood", ["Ed Wood is a film.", " It stars Johnny Depp."]],
    ["Depp", ["An actor."]],
    ["Noise", ["No."]],
]
FACTS = [["Ed Wood", 1], ["Depp", 0], ["Ed Wood", 0]]
HOTPOT = {
    "_id": "5a8b57f25542995d1e6f1371",
    "answer": "Johnny Depp",
    "question": "Who stars in Ed Wood?",
    "supporting_facts": FACTS,
    "context": PARAGRAPHS,
    "type": "bridge",
    "level": "hard",
}
TITLES = [title for title, _ in PARAGRAPHS]
TEXTS = [texts for _, texts in PARAGRAPHS]
HUGGING_FACE = {
    "id": "a",
    "question": "Who stars in Ed Wood?",
    "answer": "Johnny Depp",
    "supporting_facts": {"title": ["Ed Wood", "Depp"], "sent_id": [1, 0]},
    "context": {"title": TITLES, "sentences": TEXTS},
}
FLASHRAG_2WIKI = {
    "id": "dev_0",
    "question": "Who stars in Ed Wood?",
    "golden_answers": ["Johnny Depp"],
    "metadata": {
        "type": "bridge",
        "supporting_facts": {"title": ["Ed Wood", "Depp"], "sent_id": [1, 0]},
        "context": {"title": TITLES, "content": TEXTS},
    },
}
MUSIQUE = {
    "id": "2hop__460946_294723",
    "paragraphs": [
        {"idx": 0, "title": "Green", "paragraph_text": "Green is by Steve Hillage.", "is_supporting": True},
        {"idx": 1, "title": "Red", "paragraph_text": "Red is not.", "is_supporting": False},
    ],
    "question": "Who is the spouse of the Green performer?",
    "question_decomposition": [],
    "answer": "Miquette Giraudy",
    "answer_aliases": ["Giraudy", "Miquette Giraudy"],
    "answerable": True,
}
BAMBOOGLE = {"Question": "Who was president when superconductivity was found?", "Answer": "Franklin D. Roosevelt"}


def written(tmp_path: Path, *rows: Any, name: str = "q.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def one(tmp_path: Path, row: Any) -> Asked:
    (asked,) = read(written(tmp_path, row)).asked
    return asked


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        (NQ, ("Fernie Alpine Resort", "Fernie")),
        (FLASHRAG, ("Röntgen",)),
        (HOTPOT, ("Johnny Depp",)),
        (MUSIQUE, ("Miquette Giraudy", "Giraudy")),
        (BAMBOOGLE, ("Franklin D. Roosevelt",)),
    ],
)
def test_every_layout_is_read(tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...]) -> None:
    asked = one(tmp_path, row)
    assert asked.question == row.get("question", row.get("Question"))
    assert asked.answers == answers
    assert asked.id == row.get("id", row.get("_id", asked.id))
    assert is_questions(written(tmp_path, row))


@pytest.mark.parametrize("row", [HOTPOT, HUGGING_FACE, FLASHRAG_2WIKI])
def test_supporting_passages_are_those_of_the_facts(tmp_path: Path, row: dict[str, Any]) -> None:
    support = one(tmp_path, row).support
    assert [(one.title, one.text) for one in support] == [
        ("Ed Wood", "Ed Wood is a film. It stars Johnny Depp."),
        ("Depp", "An actor."),
    ]


def test_passages_of_musique_and_of_files_without_any(tmp_path: Path) -> None:
    assert [passage.title for passage in one(tmp_path, MUSIQUE).support] == ["Green"]
    assert one(tmp_path, NQ).support == one(tmp_path, FLASHRAG).support == ()


def test_questions_without_an_answer_are_counted(tmp_path: Path) -> None:
    found = read(written(tmp_path, MUSIQUE, {**MUSIQUE, "id": "b", "answerable": False}, NQ))
    assert (len(found.asked), found.unanswerable) == (2, 1)


def test_a_whole_array_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "hotpot_dev.json"
    path.write_text(json.dumps([HOTPOT, {**HOTPOT, "_id": "b"}]))
    assert len(read(path).asked) == 2
    path.write_text(json.dumps([HOTPOT, {"question": "Q?"}]))
    with pytest.raises(UserError, match="line 2 is no question: there is no"):
        read(path)
    path.write_text(json.dumps([HOTPOT])[:-5])
    with pytest.raises(UserError, match="no JSON array"):
        read(path)


def test_equal_rows_are_one_and_equal_ids_are_not(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, NQ, NQ, FLASHRAG, FLASHRAG)).asked) == 2
    with pytest.raises(UserError, match="line 2: the id test_0 is another question's"):
        read(written(tmp_path, FLASHRAG, {**FLASHRAG, "question": "who got the second one"}))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "line 2 is no JSON"),
        ("[" * 100_000, "line 2 is no JSON"),
        ("7", "line 2 is no question: it is no JSON object"),
        ('"question"', "line 2 is no question: it is no JSON object"),
        ({"question": "Q?"}, "line 2 is no question: there is no '`golden_answers` or `answer`'"),
        ({"answer": "A"}, "line 2 is no question: there is no 'question'"),
        ({"question": " ", "answer": "A"}, "line 2 is no question: `question` is no text, or empty"),
        ({"question": 7, "answer": "A"}, "line 2 is no question: `question` is no text, or empty"),
        ({"question": "Q?", "answer": []}, "line 2 is no question: `answer` holds no answer"),
        ({"question": "Q?", "golden_answers": [""]}, "line 2 is no question: `golden_answers` holds no answer"),
        ({"question": "Q?", "golden_answers": [7]}, "line 2 is no question: `golden_answers` is neither a text nor"),
        ({"question": "Q?", "answer": None}, "line 2 is no question: "),
        ({**HOTPOT, "context": [["Ed Wood"]]}, "line 2 is no question: "),
        ({**HUGGING_FACE, "context": {"title": TITLES}}, "line 2 is no question: there is no"),
        ({**MUSIQUE, "paragraphs": [{"is_supporting": True}]}, "line 2 is no question: there is no 'title'"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        read(written(tmp_path, NQ, row))
    assert said in error.value.message
    assert "golden_answers" in error.value.hint


def test_files_that_hold_no_question(tmp_path: Path) -> None:
    for path in (written(tmp_path), written(tmp_path, {**MUSIQUE, "answerable": False})):
        with pytest.raises(UserError, match="holds no question"):
            read(path)
    with pytest.raises(NotFound, match="no file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UserError, match="no text in UTF-8"):
        read(tmp_path / "binary.jsonl")
    assert not is_questions(tmp_path / "binary.jsonl")
    assert not is_questions(written(tmp_path))
    assert not is_questions(written(tmp_path, "{"))
    assert not is_questions(written(tmp_path, {"schema": "selfplay.task/1", "task": {}}))


def test_lines_may_be_empty_and_hold_any_character(tmp_path: Path) -> None:
    asked = {**NQ, "question": "who wrote \u2028 this?"}
    path = written(tmp_path, "", json.dumps(asked, ensure_ascii=False), "", "")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path).asked[0].question == "who wrote \u2028 this?"
