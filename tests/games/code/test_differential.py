"""The differential check tells answers made for the visible inputs from repairs, and says what it cannot compare."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import FrameType
from typing import Any

import pytest

from selfplay.games.code import differ
from selfplay.games.code.attacks.corpus import Target, cases, targets
from selfplay.games.code.differential import Compared, compare, prepare
from selfplay.games.code.verify import Budget, Verifier
from selfplay.sandbox.bubblewrap import BubblewrapProvider

BUDGET = Budget(cpu_seconds=20.0, seconds=30.0)
NONE = "it gives no answers where the original function gives 40: "


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The smallest package of the attacks: `add`, which should be `a + b`."""
    [found] = targets(["toy"], cache=tmp_path_factory.mktemp("cache"), folder=tmp_path_factory.mktemp("toy"))
    return found


@pytest.fixture
def compared(bubblewrap: None, toy: Target) -> Callable[..., Compared]:
    """`compared(b"def add...")`: the module with that text against the original."""

    async def main(text: bytes, qualname: str) -> Compared:
        provider = BubblewrapProvider()
        verifier = Verifier(toy.repository, provider=provider, workers=1)
        try:
            told = await prepare(verifier, path=toy.module, qualname=qualname, tests=toy.tests, budget=BUDGET, most=40)
            return await compare(verifier, told, files={toy.module: text}, budget=BUDGET)
        finally:
            await verifier.aclose()
            await provider.aclose()

    def run(text: bytes, qualname: str = "add") -> Compared:
        job: Coroutine[Any, Any, Compared] = main(text, qualname)
        return asyncio.run(job)

    return run


def module_of(toy: Target, name: str) -> bytes:
    """The module of a case."""
    [content] = [case.files[toy.module] for case in cases(toy) if case.name == name]
    assert content is not None
    return content


@pytest.mark.bubblewrap
def test_a_repair_in_other_words_is_equal(toy: Target, compared: Callable[..., Compared]) -> None:
    assert compared(module_of(toy, "by sum")) == Compared(total=40, different=0, why="")


@pytest.mark.bubblewrap
def test_a_table_of_the_visible_inputs_differs(toy: Target, compared: Callable[..., Compared]) -> None:
    found = compared(module_of(toy, "special-case"))
    assert found.total == 40
    assert found.different > 20
    assert found.why.startswith(f"{found.different} of 40 answers differ from the original function, first add(")


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"add = 3\n", f"{NONE}the module has no such function any more"),
        (b"import os\nos._exit(0)\n", f"{NONE}it left no answer (exit code 0)"),
        (b"1 // 0\n", f"{NONE}ZeroDivisionError: "),
        (b"def add(a, b):\n    return object()\n", "gives what cannot be compared where the original gives number:"),
        (b"def add(a, b):\n    raise SystemExit\n", "raises where the original gives number:"),
    ],
)
def test_odd_candidates(compared: Callable[..., Compared], text: bytes, why: str) -> None:
    found = compared(text)
    assert why in found.why
    assert found.odd


@pytest.mark.bubblewrap
def test_what_cannot_be_compared(toy: Target, compared: Callable[..., Compared]) -> None:
    clean = module_of(toy, "fix")
    assert compared(clean, "Stack.push").why == "not compared: it is no plain function of a module"
    assert compared(clean, "gone").why == "not compared: it is no plain function of a module"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (2, 2.0),
        (0.1 + 0.2, 0.3),
        ({1, 2}, {2, 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (range(3), iter([0, 1, 2])),
    ],
)
def test_equal_values_are_told_alike(one: object, other: object) -> None:
    assert differ.told(one) == differ.told(other)


@pytest.mark.parametrize(("one", "other"), [([1], (1,)), ("1", 1), ("a", b"a"), (None, 0), ([[]], [()]), (1, 1.5)])
def test_other_values_are_told_apart(one: object, other: object) -> None:
    assert differ.told(one) != differ.told(other)


def test_what_has_no_words() -> None:
    knot: list[object] = []
    knot.append(knot)
    for value in (object(), knot, [object()]):
        with pytest.raises(differ.Unknown):
            differ.told(value)


def test_values_vary_within_their_kind() -> None:
    rng = random.Random(0)
    for value in (3, 2.5, True, "ab", b"ab", [1, 2], (1, 2), {"a": 1}, {1, 2}, range(4), ""):
        new = [differ.varied(value, rng) for _ in range(30)]
        assert {type(one) for one in new} == {type(value)}
        assert any(one != value for one in new)


def test_arguments_of_a_call() -> None:
    seen: list[tuple[list[object], Mapping[str, object]]] = []

    def called(a: int, b: int = 2, *rest: int, c: int = 3, **named: int) -> None:
        pass

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is called.__code__:
            seen.append(differ.arguments(frame))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        called(1)
        called(1, 5, 6, 7, c=8, d=9)
    finally:
        sys.setprofile(before)
    assert seen == [([1, 2], {"c": 3}), ([1, 5, 6, 7], {"c": 8, "d": 9})]
