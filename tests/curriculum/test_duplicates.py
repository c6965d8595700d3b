"""Copies share a key, however they are laid out; different bugs do not."""

from __future__ import annotations

import pytest

from selfplay.curriculum.duplicates import answer_key, code_key, normalised

DIFF = """diff --git a/m.py b/m.py
--- a/m.py
+++ b/m.py
@@ -3,2 +3,2 @@ def f(x):
-    return x + 1
+    return x - 1
     # end
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@@ -3,2 +3,2 @@ def f(x):", "@@ -30,2 +31,2 @@"),
        ("return x - 1", "return  x  -  1   # no"),
        ("+    return x - 1", "+\n+    return x - 1"),
        ("# end", "# the end"),
    ],
)
def test_layout_places_and_comments_do_not_count(old: str, new: str) -> None:
    assert code_key(["f"], ["a", "b"], DIFF) == code_key(["f", "f"], ["b", "a"], DIFF.replace(old, new))


def test_symbols_failing_tests_and_the_change_count() -> None:
    keys = {
        code_key(["f"], ["a"], DIFF),
        code_key(["g"], ["a"], DIFF),
        code_key(["f"], ["b"], DIFF),
        code_key(["f"], ["a"], DIFF.replace("x - 1", "x - 2")),
        code_key(["f"], ["a"], DIFF.replace("-    return x + 1\n", "")),
    }
    assert len(keys) == 5


def test_what_is_not_python_is_compared_by_its_words() -> None:
    assert normalised("+x = (\n+if   a &&  b {\n-\n") == ["+x = (", "+if a && b {"]


@pytest.mark.parametrize("answer", ["The Café", "cafe.", "CAFÉ!", " a cafe "])
def test_answers_are_compared_as_exact_match_does(answer: str) -> None:
    assert answer_key(answer, ["d1", "d2"]) == answer_key("cafe", ["d2", "d1"])


def test_another_answer_or_other_evidence_is_another_question() -> None:
    assert len({answer_key("a b", ["1"]), answer_key("b", ["2"]), answer_key("c", ["1"])}) == 3
