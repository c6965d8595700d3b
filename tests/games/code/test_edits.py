"""Tests of `selfplay.games.code.edits`: showing, reading, refusing, applying."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.games.code.edits import MAX_CHARS, Edit, Reason, Refusal, apply, invert, number, parse

PLAIN = "def add(a, b):\n    # the sum\n    total = a + b\n    return total\n"
METHOD = '''    @property
    def size(self):
        """ The size.

        >>> thing.size
        3
        """
        text = """
left
            right"""

        if self.empty:
            return 0
        return len(self.parts) + len(text)
'''


def edit_of(reply: str, source: str = PLAIN) -> Edit:
    edit = parse(reply, source=source)
    assert isinstance(edit, Edit), edit
    return edit


def reason_of(reply: str, source: str = PLAIN) -> Reason:
    refusal = parse(reply, source=source)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.why.endswith(".")
    assert len(refusal.why) < 200
    return refusal.reason


def test_number_shows_every_line_of_a_function_without_docstring() -> None:
    assert number(PLAIN).split("\n") == [
        "1|def add(a, b):",
        "2|    # the sum",
        "3|    total = a + b",
        "4|    return total",
    ]


def test_number_removes_the_margin_and_the_tail_of_the_docstring() -> None:
    assert number(METHOD).split("\n") == [
        "1|@property",
        "2|def size(self):",
        '3|    """ The size.',
        '8|    text = """',
        "9|left",
        '10|        right"""',
        "11|",
        "12|    if self.empty:",
        "13|        return 0",
        "14|    return len(self.parts) + len(text)",
    ]


def test_number_finds_the_first_words_of_a_docstring_that_starts_with_a_line_break() -> None:
    source = 'def f():\n    r"""\n    Words.\n\n    More.\n    """\n    return 1\n'
    assert number(source).split("\n") == ["1|def f():", '2|    r"""', "3|    Words.", "7|    return 1"]


def test_one_line_is_replaced_and_all_others_keep_their_bytes() -> None:
    edited = apply(METHOD, edit_of("14|    return len(self.parts)", METHOD))
    assert edited == METHOD.replace("        return len(self.parts) + len(text)\n", "        return len(self.parts)\n")


def test_several_lines_may_change_and_a_line_may_go() -> None:
    edit = edit_of("3|\n4|    return a + b")
    assert apply(PLAIN, edit) == "def add(a, b):\n    # the sum\n\n    return a + b\n"


def test_a_line_that_went_can_come_back() -> None:
    first = edit_of("3|\n4|    return a + b")
    broken = apply(PLAIN, first)
    back = edit_of(invert(PLAIN, first).text, broken)
    assert apply(broken, back) == PLAIN


def test_text_and_parse_are_inverse() -> None:
    reply = "3|    total = a\n4|    return total + b"
    assert edit_of(reply).text == reply


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", Reason.EMPTY),
        (" \n\n", Reason.EMPTY),
        ("x" * 100_000, Reason.TOO_LONG),
        ("3|" + "(" * 1_900, Reason.NOT_PARSABLE),
        ("3|    total = " + "-" * 1_900 + "a", Reason.NOT_PARSABLE),
        ("3|    total = a\x00b", Reason.NOT_TEXT),
        ("3|    total = '\ud800'", Reason.NOT_TEXT),
        ("\ufffd\ufffd", Reason.NOT_TEXT),
        ("I would change the third line.", Reason.NO_EDIT),
        ("def add(a, b):\n    return a - b", Reason.NO_EDIT),
        (" 3|    total = a", Reason.NO_EDIT),
        ("```\n3|    total = a\n```", Reason.MALFORMED),
        ("3|    total = a\n\n4|    return a", Reason.MALFORMED),
        ("1|def add(a, b):\n2|\n3|\n4|    return 1", Reason.TOO_MANY_LINES),
        ("4|    return a\n3|    total = b", Reason.DISORDERED),
        ("3|    total = a\n3|    total = b", Reason.DISORDERED),
        ("0|    total = a", Reason.OUT_OF_RANGE),
        ("5|    total = a", Reason.OUT_OF_RANGE),
        ("99999|    total = a", Reason.NO_EDIT),
        ("3|    total = a + b", Reason.UNCHANGED),
        ("3|    total  =  a + b", Reason.UNCHANGED),
        ("2|    # a sum", Reason.UNCHANGED),
        ("3|    total = a +", Reason.NOT_PARSABLE),
        ("3|        total = a - b", Reason.NOT_PARSABLE),
        ("1|def add(a, b=1):", Reason.SIGNATURE),
        ("1|def sub(a, b):", Reason.SIGNATURE),
        ("1|async def add(a, b):", Reason.SIGNATURE),
        ("1|@cache", Reason.NOT_PARSABLE),
        ("4|total = 1", Reason.SIGNATURE),
    ],
)
def test_refusals(reply: str, reason: Reason) -> None:
    assert reason_of(reply) is reason


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("1|@cached", Reason.SIGNATURE),
        ("1|", Reason.NOT_PARSABLE),
        ("9|right", Reason.OUT_OF_RANGE),
        ('3|    """ The length.', Reason.DOCSTRING),
        ("5|    4", Reason.DOCSTRING),
        ("14|return 0", Reason.SIGNATURE),
    ],
)
def test_refusals_of_a_method(reply: str, reason: Reason) -> None:
    assert reason_of(reply, METHOD) is reason


def test_a_line_of_100_kb_is_refused_at_once() -> None:
    start = time.perf_counter()
    for _ in range(100):
        parse("3|" + "(" * 100_000, source=PLAIN)
    assert time.perf_counter() - start < 1.0


def test_parse_wants_one_function() -> None:
    with pytest.raises(ValueError, match="one function"):
        parse("1|x = 1", source="x = 2\n")


def test_apply_wants_lines_that_exist() -> None:
    with pytest.raises(IndexError, match="line 9"):
        apply(PLAIN, Edit(lines=((9, "x"),)))


@given(st.text(max_size=MAX_CHARS + 10))
def test_no_reply_is_a_crash(reply: str) -> None:
    assert isinstance(parse(reply, source=METHOD), Edit | Refusal)


@given(st.integers(1, 14), st.text(alphabet="ab 01=+-()#:'\"\\", max_size=30))
def test_what_is_accepted_can_be_undone(line: int, text: str) -> None:
    edit = parse(f"{line}|    {text}", source=METHOD)
    if isinstance(edit, Edit):
        broken = apply(METHOD, edit)
        back = parse(invert(METHOD, edit).text, source=broken)
        assert isinstance(back, Edit)
        assert apply(broken, back) == METHOD
