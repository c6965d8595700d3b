"""The program that calls a function on many inputs: words for values, inputs like others, what is left out."""

from __future__ import annotations

import pickle
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from selfplay.games.code import differ


@pytest.fixture(autouse=True)
def timer() -> Iterator[None]:
    """The program's own handler, as `main` sets it."""
    before = signal.signal(signal.SIGPROF, differ.late)
    yield
    signal.signal(signal.SIGPROF, before)


def packed(*positional: object, **named: object) -> bytes:
    return pickle.dumps((list(positional), named))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, True),
        (0.1 + 0.2, 0.3, True),
        (1, 2, False),
        (1, "1", False),
        ([1], (1,), False),
        ({1, 2}, frozenset({2, 1}), True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (iter([1, 2]), (n for n in (1, 2)), True),
        (range(2), iter([0, 1]), True),
        (float("nan"), float("nan"), True),
        (10**400, 10**401, True),
        (b"a", "a", False),
    ],
)
def test_equal_values_are_told_alike(one: Any, other: Any, equal: bool) -> None:
    assert (differ.told(one) == differ.told(other)) is equal


def test_values_that_cannot_be_told() -> None:
    deep: list[Any] = []
    for _ in range(differ.DEEPEST + 2):
        deep = [deep]
    for value in (object(), deep, [object()], type("Own", (list,), {})()):
        with pytest.raises(differ.Unknown):
            differ.told(value)


def test_what_a_call_gives_and_whether_it_leaves_its_arguments_alone() -> None:
    assert differ.outcome(sorted, packed([2, 1]), seconds=1.0) == ("list(number:1, number:2)", True)
    assert differ.outcome(list.sort, packed([2, 1]), seconds=1.0) == ("NoneType:None", False)
    assert differ.outcome(int, packed("x"), seconds=1.0) == ("raises", True)
    assert differ.outcome(int, packed("11", base=2), seconds=1.0) == ("number:3", True)
    long, _ = differ.outcome(str.upper, packed("a" * 1000), seconds=1.0)
    assert len(long) < differ.LONGEST + 40
    assert long != differ.outcome(str.upper, packed("a" * 1001), seconds=1.0)[0]


def test_a_call_that_runs_too_many_lines_is_ended() -> None:
    def runs(times: int) -> int:
        total = 0
        while total < times:
            total += 1
        return total

    assert differ.outcome(runs, packed(5), seconds=10.0, lines=100) == ("number:5", True)
    with pytest.raises(differ.TooLong):
        differ.outcome(runs, packed(10**9), seconds=60.0, lines=100)
    with pytest.raises(differ.TooLong):
        differ.outcome(runs, packed(10**12), seconds=0.05)


@pytest.mark.parametrize("value", [3, 2.5, "abc", b"abc", [1, 2, 3], (1, "a"), {"a": 1}, {1, 2, 3}, range(5), True])
def test_other_values_are_of_the_same_kind(value: Any) -> None:
    rng = random.Random(0)
    made = [differ.varied(value, rng) for _ in range(40)]
    assert {type(one) for one in made} == {type(value)}
    assert any(one != value for one in made)
    again = random.Random(0)
    assert [differ.varied(value, again) for _ in range(40)] == made


def test_inputs_begin_with_those_of_the_tests_and_are_drawn_by_the_seed() -> None:
    seen = [packed([1, 2], by=2), packed([3], by=1)]
    found = list(differ.inputs(seen, random.Random(1)))
    assert found[:2] == [(seen[0], True), (seen[1], True)]
    assert len(found) > 20
    assert not any(tested for _, tested in found[2:])
    assert len({one for one, _ in found}) == len(found)
    assert list(differ.inputs(seen, random.Random(1))) == found
    assert list(differ.inputs([], random.Random(1))) == []


def test_only_inputs_with_one_answer_are_known() -> None:
    calls = iter(range(10**6))

    def gives(kind: str) -> object:
        if kind == "other":
            return next(calls)
        if kind == "object":
            return object()
        if kind == "wrong":
            raise ValueError
        return kind.upper()

    offered = [(packed(kind), tested) for kind, tested in (("a", False), ("other", True), ("object", True))]
    offered += [(packed("wrong"), True), (packed("wrong"), False), (packed("b"), True)]
    found = list(differ.known(gives, iter(offered), most=9))
    assert [(case["shown"], case["gives"]) for case in found] == [
        ("'a'", "str:'A'"),
        ("'wrong'", "raises"),
        ("'b'", "str:'B'"),
    ]
    assert len(list(differ.known(gives, iter(offered), most=1))) == 1


def test_functions_that_are_no_plain_ones() -> None:
    plain, others = ("textwrap.dedent", "os.walk"), ("textwrap.TextWrapper", "os.nothing", "fnmatch._compile_pattern")
    for names, there in ((plain, True), (others, False)):
        for name in names:
            module, _, qualname = name.partition(".")
            found = differ.function_of({"module": module, "qualname": qualname})
            assert (found is not None) is there, name
