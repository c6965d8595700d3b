"""A small package with every kind of test in it, and the code game opened on it in a real sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from selfplay.games import Minted
from selfplay.games.code import CodeGame, Settings
from selfplay.games.code.opening import Opening
from selfplay.games.code.survey import Rules
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.types import Role, Seed, Stop, Task, Trajectory, Turn, Verdict
from tests.backends import needed

T = TypeVar("T")

PACKAGE = {
    "pkg/__init__.py": "from pkg.core import *\n",
    "pkg/core.py": '''
        import functools


        def add(a, b):
            """The sum.

            More words about it.
            """
            total = a + b
            return total


        def count(n):
            i = 0
            while i < n:
                i += 1
            return i


        def untested(a):
            return a * 2


        @functools.lru_cache
        def double(a):
            return add(a, a)


        def at_import(n):
            return [n] * n


        TABLE = at_import(3)


        class Stack:
            def __init__(self):
                self.items = []

            def push(self, x):
                self.items.append(x)
                return len(self.items)
    ''',
    "tests/conftest.py": """
        import pytest


        @pytest.fixture
        def stack():
            from pkg import Stack

            return Stack()
    """,
    "tests/test_core.py": """
        import unittest

        import pytest

        from pkg import core


        @pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 4), (0, 0)])
        def test_add(a, b):
            assert core.add(a, b) == a + b


        def test_double():
            assert core.double(4) == 8


        def test_count():
            assert core.count(3) == 3


        def test_table():
            assert core.at_import(2) == [2, 2]
            assert core.TABLE == [3, 3, 3]


        class TestStack(unittest.TestCase):
            def test_push(self):
                stack = core.Stack()
                for i in range(3):
                    with self.subTest(i=i):
                        self.assertEqual(stack.push("x"), i + 1)


        def test_fixture(stack):
            assert stack.push(1) == 1


        def test_fails():
            assert core.add(1, 1) == 3


        @pytest.mark.skip(reason="not today")
        def test_skipped():
            assert core.add(1, 1) == 2


        @pytest.fixture
        def leaves_a_mess():
            yield
            raise RuntimeError("cannot clean up")


        def test_teardown(leaves_a_mess):
            assert core.add(1, 1) == 2
    """,
}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write `files` under `folder`."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text).lstrip("\n"))
    return folder


class Table:
    """A code game with its seeds by name, run from synchronous tests on one event loop."""

    def __init__(self, source: str, cache: Path, *, max_failing: float = 0.3, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        chosen = Settings(rules=Rules(max_failing=max_failing), stdlib=20, **settings)
        self.game = CodeGame(
            opening=Opening(source, cache=cache, provider=BubblewrapProvider(), settings=chosen),
            proposer=Role(name="injector", game="code", side="proposer", prompt="{{ function }}\n"),
            solver=Role(name="repairer", game="code", side="solver", prompt="{{ function }}\n{{ tests }}\n"),
            config_digest="test",
        )
        self.by_name: dict[str, Seed] = {}

    def open(self) -> Table:
        """Survey the repository."""
        self.by_name = {seed.payload["qualname"]: seed for seed in self.do(self.game.seeds())}
        return self

    def do(self, job: Coroutine[Any, Any, T]) -> T:
        """Run it to its end."""
        return self._runner.run(job)

    def mint(self, name: str, reply: str, *, stop: Stop = Stop.DONE) -> Minted:
        """Propose `reply` for a function."""
        return self.do(self.game.mint(trajectory(reply, stage="propose", stop=stop), self.by_name[name]))

    def judge(self, reply: str, task: Task, *, stop: Stop = Stop.DONE) -> Verdict:
        """Attempt a task with `reply`."""
        return self.do(self.game.judge(trajectory(reply, stage="attempt", stop=stop), task))

    def grade(self, minted: Verdict, judged: Sequence[Verdict]) -> Verdict:
        """Grade a proposal."""
        return self.game.grade(trajectory("", stage="propose"), minted, judged)

    def close(self) -> None:
        """Close the sandboxes and the event loop."""
        self.do(self.game.aclose())
        self._runner.close()


def trajectory(reply: str, *, stage: Literal["propose", "attempt"], stop: Stop = Stop.DONE) -> Trajectory:
    """A reply as the rollout records it."""
    return Trajectory(
        id="t",
        step=0,
        stage=stage,
        role="role",
        subject_id="s",
        index=0,
        turns=(Turn(speaker="policy", token_ids=(1,), logprobs=(-1.0,), text=reply),),
        stop=stop,
        policy_version=(0, 0),
    )


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Skip where bubblewrap is not ready, or fail where SELFPLAY_REQUIRE_BUBBLEWRAP=1 says that it must be."""
    needed("bubblewrap")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small package."""
    return write(tmp_path_factory.mktemp("repository") / "pkg-1.0", PACKAGE)


@pytest.fixture(scope="session")
def table(bubblewrap: None, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The code game on the small package."""
    opened = Table(str(package), tmp_path_factory.mktemp("cache"), held_out=0.0, dev_seeds=2)
    yield opened.open()
    opened.close()


@pytest.fixture
def table_of(bubblewrap: None, tmp_path: Path) -> Iterator[Callable[..., Table]]:
    """`table_of({"a.py": "..."})` or `table_of("pypi:...")`: the code game on something else, not yet opened."""
    with contextlib.ExitStack() as stack:

        def run(source: dict[str, str] | str, **settings: Any) -> Table:
            place = source if isinstance(source, str) else str(write(tmp_path / "repository", source))
            made = Table(place, settings.pop("cache", tmp_path / "cache"), **settings)
            stack.callback(made.close)
            return made

        yield run
