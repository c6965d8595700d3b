"""What a check collects: few sentences, all counted; damage it meets is a finding, an error of ours is not."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing

import pytest

from selfplay.ledger.found import MOST, Found, one, timed


def test_few_are_told_and_all_are_counted() -> None:
    def check(found: Found) -> None:
        for number in range(MOST + 3):
            found.count += 1
            found.unless(False, f"{number} is wrong")
            found.unless(True, "never said")
        found.notes.append("worth knowing")

    checked = timed("numbers", "some numbers", check)
    assert checked.problems == tuple(f"{number} is wrong" for number in range(MOST))
    assert (checked.name, checked.what, checked.count, checked.num_problems) == ("numbers", "some numbers", 8, MOST + 3)
    assert checked.notes == ("worth knowing",)
    assert checked.seconds >= 0.0


@pytest.mark.parametrize(
    "error", [sqlite3.DatabaseError("malformed"), zlib.error("-3"), KeyError("id"), TypeError("x")]
)
def test_damage_in_the_middle_keeps_what_was_found_before(error: Exception) -> None:
    def check(found: Found) -> None:
        found.count = 7
        found.problem("the first")
        raise error

    checked = timed("rows", "rows", check)
    assert (checked.count, checked.num_problems) == (7, 2)
    assert checked.problems == ("the first", f"the file is damaged: {error}")


def test_other_errors_are_not_taken_for_damage() -> None:
    def check(found: Found) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        timed("rows", "rows", check)


def test_one_number() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert one(connection, "SELECT ? + 1", 2) == 3
