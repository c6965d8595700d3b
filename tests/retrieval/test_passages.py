"""Where a text is cut, and that offsets and pieces do not matter to it."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from selfplay.retrieval.passages import LOOK, MOST, cut


def sentence(words: int, *, start: str = "The") -> str:
    return " ".join([start, *(f"word{i}" for i in range(words - 1))]) + "."


def test_a_passage_ends_at_the_sentence_nearest_to_100_words() -> None:
    text = " ".join([sentence(40), sentence(45), sentence(20), sentence(30)])
    assert [len(one.text.split()) for one in cut([text])] == [105, 30]
    assert [len(one.text.split()) for one in cut([sentence(60) + " " + sentence(59)])] == [119]
    assert [len(one.text.split()) for one in cut([sentence(60) + " " + sentence(80)])] == [60, 80]


def test_a_text_without_sentences_is_cut_after_100_words() -> None:
    assert [len(one.text.split()) for one in cut(["cell | " * 125])] == [100, 100, 50]


def test_short_forms_and_small_letters_end_no_sentence() -> None:
    text = sentence(70) + " See Dr. Who, i.e. him. " + sentence(60)
    assert next(len(one.text.split()) for one in cut([text])) == 75
    text = sentence(70) + " so it goes. " + sentence(60)
    assert next(len(one.text.split()) for one in cut([text])) == 73


def test_an_empty_line_ends_a_sentence() -> None:
    text = "word " * 80 + "\n \nother " + "word " * 70
    assert [len(one.text.split()) for one in cut([text])] == [80, 71]


def test_scripts_without_spaces_are_cut_by_characters() -> None:
    chinese = "我们在城市的图书馆里读书。" * 60
    parts = list(cut([chinese]))
    assert all(one.text.endswith("。") for one in parts)
    assert all(150 <= len(one.text) <= 250 for one in parts[:-1])
    thai = list(cut(["ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 30]))
    assert all(len(one.text) == 200 for one in thai[:-1])


def test_a_run_without_any_space_is_cut() -> None:
    parts = list(cut(["x" * 100_000]))
    assert max(len(one.text) for one in parts) <= 64 * MOST
    assert "".join(one.text for one in parts) == "x" * 100_000


def test_white_space_has_no_passage() -> None:
    assert list(cut([])) == []
    assert list(cut(["", " \n", "\t"])) == []
    assert [(one.start, one.text) for one in cut([" " * 50_000, "a", " " * 50_000, "b"])] == [
        (50_000, "a"),
        (100_001, "b"),
    ]


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(
            [sentence(30), "word " * 60, "東京。", "\n\n", " ", " " * 700, "y" * 300, "Mr. X said: “No.” "]
        ),
    ),
    max_size=40,
).map("".join)


@settings(max_examples=25, deadline=None)
@given(TEXTS, st.integers(1, 997))
def test_offsets_are_right_nothing_is_lost_and_pieces_do_not_matter(text: str, size: int) -> None:
    parts = list(cut([text]))
    assert parts == list(cut(text[i : i + size] for i in range(0, len(text), size)))
    assert all(text[one.start : one.end] == one.text for one in parts)
    assert all(a.end <= b.start for a, b in itertools.pairwise(parts))
    between = "".join(
        text[a:b] for a, b in zip([0, *(p.end for p in parts)], [*(p.start for p in parts), None], strict=True)
    )
    assert not between.strip()
    assert all(len(one.text) <= LOOK for one in parts)


def test_a_giant_text_never_lies_in_memory() -> None:
    def pieces() -> Iterator[str]:
        for _ in range(200):
            yield ("x" * 60 + " ") * 500  # 6 MB, one line

    tracemalloc.start()
    count = sum(1 for _ in cut(pieces()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1000
    assert peak < 1_500_000
