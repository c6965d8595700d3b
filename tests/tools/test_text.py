"""Text for a policy: printable, and no longer than allowed."""

from __future__ import annotations

import pytest

from selfplay.tools.text import joined, parts_of, plain, shortened


def test_what_fits_stays() -> None:
    assert shortened("abc", 3) == "abc"


@pytest.mark.parametrize("limit", [0, 1, 10, 39, 40, 41, 100, 1000])
def test_it_never_exceeds_the_limit(limit: int) -> None:
    assert len(shortened("x" * 5000, limit)) <= limit
    assert len(joined("a" * 700, "b" * 700, gone=10**12, limit=limit)) <= limit


def test_the_count_is_what_was_left_out() -> None:
    found = shortened("".join(map(str, range(5000))), 200)
    head, _, rest = found.partition("\n[... ")
    count, _, tail = rest.partition(" characters left out ...]\n")
    assert int(count) == len("".join(map(str, range(5000)))) - len(head) - len(tail)
    assert head.startswith("0123")
    assert tail.endswith("4999")


def test_bytes_cut_before_are_counted_too() -> None:
    assert joined("ä" * 10, "b" * 10, gone=7, limit=1000) == "ä" * 10 + "\n[... 7 bytes left out ...]\n" + "b" * 10
    found = joined("ä" * 1000, "b" * 1000, gone=7, limit=100)
    left = 2000 + 1000 + 7 - 2 * found.count("ä") - len(found.rpartition("\n")[2])
    assert f"[... {left} bytes left out ...]" in found


def test_short_tails_leave_room_for_the_head() -> None:
    found = joined("a" * 1000, "b" * 3, gone=5, limit=100)
    assert found.endswith("]\nbbb")
    assert found.count("a") > 50


def test_the_mark_of_a_result_is_read() -> None:
    assert parts_of("head\n[... 12 bytes cut ...]\ntail", 12) == ("head", "tail")
    assert parts_of("head\n[... 12 bytes cut ...]\ntail", 0) == ("head\n[... 12 bytes cut ...]\ntail", "")


def test_what_cannot_be_shown_is_replaced() -> None:
    assert plain("a\x1b[31mred\x1b[0m\x1b]0;title\x07\r\nb\rc\x00\x07\udcff\té") == "ared\nb\nc\ufffd\ufffd\ufffd\té"
