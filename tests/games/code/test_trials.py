"""The third run of the clean tree: another order, another hash seed; real runs: `test_checks`."""

from __future__ import annotations

from itertools import groupby

from selfplay.games.code.trials import in_drawn_order, other_hash_seed

TESTS = [
    f"tests/test_{file}.py::{place}test_{name}"
    for file in "abcd"
    for place in ("", "TestOne::", "TestTwo::")
    for name in ("x", "y[1]", "y[2]", "y[a::b]")
]


def test_the_order_is_another_one_and_always_the_same() -> None:
    drawn = in_drawn_order(TESTS)
    assert sorted(drawn) == sorted(TESTS)
    assert drawn != TESTS
    assert in_drawn_order(reversed(TESTS)) == drawn  # type: ignore[arg-type]
    assert in_drawn_order([]) == []


def test_tests_of_a_file_and_of_a_class_stay_together() -> None:
    drawn = in_drawn_order(TESTS)
    files = [name for name, _ in groupby(drawn, key=lambda test: test.partition("::")[0])]
    assert len(files) == len(set(files)) == 4
    classes = [name for name, _ in groupby(t.split("[")[0].rpartition("::")[0] for t in drawn if "::Test" in t)]
    assert len(classes) == len(set(classes)) == 8, "also where a parameter holds two colons"


def test_a_hash_seed_that_is_not_the_usual_one() -> None:
    seeds = [other_hash_seed("digest", str(i)) for i in range(500)]
    assert len(set(seeds)) == 500
    assert min(seeds) > 0
    assert max(seeds) < 2**32
    assert other_hash_seed("a", "b") == other_hash_seed("a", "b") != other_hash_seed("b", "a")
