"""Bugs by another mechanism: what each kind does, and that none is one of the warm-up's."""

from __future__ import annotations

import pytest

from selfplay.evaluation.mechanism import KINDS, slips
from selfplay.games.code import edits
from selfplay.games.code.mutate import mutations

SOURCE = '''    def pick(self, xs, key=None):
        """Doc."""
        out = []
        if not xs:
            return out
        total = 0
        for x in xs[1:]:
            total += len(x)
            out.append(x - total)
        try:
            y = sorted(out, key=key)[0]
        except (KeyError, ValueError):
            y = None
        if y:
            return y
        elif total:
            return list(out)
        return out[-1]
'''


def made(kind: str) -> list[str]:
    return [slip.text for slip in slips(SOURCE) if slip.kind == kind]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("wrong_variable", "9|        out.append(x - y)"),
        ("wrong_sibling", "9|        out.extend(x - total)"),
        ("lost_argument", "11|        y = sorted(out)[0]"),
        ("lost_call", "8|        total += x"),
        ("lost_guard", "4|\n5|"),
        ("lost_augment", "8|        total = len(x)"),
        ("lost_handler", "12|    except ValueError:"),
        ("lost_step", "7|    for x in xs[:1]:"),
        ("moved_statement", "9|    out.append(x - total)"),
        ("exchanged", "8|        out.append(x - total)\n9|        total += len(x)"),
        ("merged_branch", "16|    if total:"),
        ("turned_around", "9|        out.append(total - x)"),
    ],
)
def test_each_kind(kind: str, text: str) -> None:
    assert text in made(kind)


def test_all_kinds_are_named() -> None:
    assert {slip.kind for slip in slips(SOURCE)} == set(KINDS)


def test_every_bug_can_be_mended_in_the_reply_form_and_is_none_of_the_warm_ups() -> None:
    known = {mutation.edit.text for mutation in mutations(SOURCE)}
    every = slips(SOURCE)
    assert len({slip.text for slip in every}) == len(every)
    for slip in every:
        assert slip.text not in known
        broken = edits.apply(SOURCE, slip.edit)
        back = edits.parse(edits.invert(SOURCE, slip.edit).text, source=broken)
        assert isinstance(back, edits.Edit)
        assert edits.apply(broken, back) == SOURCE


def test_what_the_warm_up_does_is_taken_out() -> None:
    # swapped neighbours are the warm-up's; that one of them is lost is not
    source = "def f(a, b):\n    return g(a, b)\n"
    assert "2|    return g(b, a)" in {mutation.edit.text for mutation in mutations(source)}
    texts = [slip.text for slip in slips(source)]
    assert "2|    return g(b, a)" not in texts
    assert "2|    return g(a)" in texts


def test_what_is_no_function() -> None:
    with pytest.raises(ValueError, match="exactly one function"):
        slips("x = 1\n")
