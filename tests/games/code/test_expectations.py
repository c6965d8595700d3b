"""Changed copies of a test expect something else: where the clean code passes the test, it fails every copy."""

from __future__ import annotations

import ast
import random
import unittest
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from selfplay.games.code.expectations import HELPER, Changed, changed

NUMBER, WORD = 7919, "zq"
HELD = {
    "value": "def test():\n    assert double(2) == 4\n",
    "text": "def test():\n    assert 'a' + 'b' == 'ab'\n",
    "list": "def test():\n    assert sorted([2, 1]) == [1, 2]\n",
    "name": "def test():\n    wanted = double(3)\n    assert double(3) == wanted\n",
    "in": "def test():\n    assert 1 in {1, 2}\n",
    "less": "def test():\n    assert double(1) < 3\n",
    "none": "def test():\n    assert {}.get(1) is None\n",
    "bare": "def test():\n    assert double(1)\n",
    "not": "def test():\n    assert not double(0)\n",
    "raises": "def test():\n    with pytest.raises(TypeError):\n        double(None)\n",
    "match": "def test():\n    with pytest.raises(ValueError, match='no'):\n        raise ValueError('no')\n",
    "warns": "def test():\n    with pytest.warns(UserWarning):\n        warnings.warn('x')\n",
    "method": "def test():\n    case.assertEqual(double(2), 4)\n",
    "called": "def test():\n    assert_same(double(2), 4)\n",
    "handed": "def test():\n    check(2)\n",
}


def double(x: Any) -> Any:
    return x * 2


def check(x: int) -> None:
    if double(x) != 4:
        raise AssertionError(x)


def assert_same(one: object, other: object) -> None:
    if one != other:
        raise AssertionError(one, other)


def copies(text: str, seed: int = 1) -> tuple[Changed, ...]:
    [test] = ast.parse(text).body
    assert isinstance(test, ast.FunctionDef)
    return changed(test, helper="other", rng=random.Random(seed))


def run(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Callable[[], None]:
    names: dict[str, Any] = {
        **{"double": double, "check": check, "assert_same": assert_same, "pytest": pytest, "warnings": warnings},
        "case": unittest.TestCase(),
    }
    exec(HELPER.format(name="other", number=NUMBER, word=WORD), names)
    module = ast.fix_missing_locations(ast.Module(body=[test], type_ignores=[]))
    exec(compile(module, "test", "exec"), names)
    made = names["test"]
    assert callable(made)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", HELD)
def test_the_test_passes_and_each_copy_fails(name: str) -> None:
    [plain] = ast.parse(HELD[name]).body
    assert isinstance(plain, ast.FunctionDef)
    run(plain)()
    found = copies(HELD[name])
    assert found
    for one in found:
        made = run(one.test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # note: what pytest raises where an exception or a warning did not come is no plain Exception.
            with pytest.raises((Exception, pytest.fail.Exception)):
                made()


def test_kinds_and_words() -> None:
    said: Mapping[str, list[tuple[str, str]]] = {
        name: [(one.kind, one.what) for one in copies(text)] for name, text in HELD.items()
    }
    assert ("opposite", "line 2: Eq became NotEq") in said["value"]
    assert ("opposite", "line 2: `assert not` became `assert`") in said["not"]
    assert ("opposite", "line 2: `assert` became `assert not`") in said["bare"]
    assert {kind for kind, _ in said["raises"]} == {"exception"}
    assert ("exception", "line 2: another `match`") in said["match"]
    assert ("opposite", "line 2: assertEqual became assertNotEqual") in said["method"]
    assert {kind for kind, _ in said["handed"]} == {"argument"}
    assert any(one.helped for one in copies(HELD["name"]))
    assert not any(one.helped for one in copies(HELD["bare"]))


def test_equal_draws_give_equal_copies_and_the_test_stays() -> None:
    [test] = ast.parse(HELD["value"]).body
    assert isinstance(test, ast.FunctionDef)
    before = ast.dump(test)
    first = [ast.dump(one.test) for one in changed(test, helper="other", rng=random.Random(3))]
    assert first == [ast.dump(one.test) for one in changed(test, helper="other", rng=random.Random(3))]
    assert ast.dump(test) == before
    assert copies("def test():\n    pass\n") == ()


@pytest.mark.parametrize("value", [True, 3, 2.5, 1j, "a", b"a", [1], (1,), {1}, frozenset({1}), {"a": 1}, None, object])
def test_the_helper_gives_another_value_of_the_same_type_where_it_can(value: object) -> None:
    names: dict[str, Any] = {}
    exec(HELPER.format(name="other", number=NUMBER, word=WORD), names)
    made = names["other"](value)
    assert made != value
    assert type(made) is (type(value) if type(value) not in (type(None), type) else tuple)
