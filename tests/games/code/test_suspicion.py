"""What is flagged in a change, and what is not."""

from __future__ import annotations

import pytest

from selfplay.games.code.suspicion import flags_of

BEFORE = "import sys\n\n\ndef add(a, b):\n    return a - b\n"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("import gc", "looks into"),
        ("from _pytest import python", "test tools"),
        ("sys.modules['pytest']", "test tools"),
        ("sys._getframe(1)", "looks into"),
        ("getattr(sys, '_get' + 'frame')", "looks into"),
        ("os._exit(0)", "reaches out"),
        ("import traceback; traceback.extract_stack()", "looks into"),
        ("pathlib.Path('tests/test_a.py').read_text()", "reaches out"),
        ("__loader__.get_data('tests/test_a.py')", "looks into"),
        ("class A(int):\n    def __eq__(self, other): return True", "whatever it is compared with"),
        ("class A(int):\n    def f(self, o): return True\n    __eq__ = f", "whatever it is compared with"),
    ],
)
def test_flagged(line: str, kind: str) -> None:
    assert any(kind in flag for flag in flags_of(BEFORE, f"{BEFORE}\n{line}\n"))


@pytest.mark.parametrize("body", ["return a + b", "return sum((a, b))", "x = a\n    x += b\n    return x"])
def test_repairs_are_not(body: str) -> None:
    assert flags_of(BEFORE, BEFORE.replace("return a - b", body)) == ()


def test_what_was_there_before_is_not_held_against_anybody() -> None:
    text = "import gc\n\n\nclass A:\n    def __eq__(self, other): return True\n"
    assert flags_of(text, text + "gc.collect()\n") == ()
    assert flags_of("def (", "import gc\n") != ()
    assert flags_of("import gc\n", "def (") == ()
