"""Suites with everything that suites have: what decides, what is left out, and what a bug in it becomes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from selfplay.games.code.opened import Opened
from tests.games.code.conftest import Table, write

pytestmark = pytest.mark.bubblewrap

FILES = {
    "pkg/__init__.py": "",
    "pkg/core.py": '''
        def plain(x):
            return x + 1


        def named(x):
            return x.upper()


        def expected(x):
            return x * 2


        def parts(x):
            return x * 3


        def stored(x):
            return [x]


        def documented(x):
            """The next one.

            >>> documented(1)
            2
            """
            return x + 1


        def in_text(x):
            return x + 3


        def at_collection(x):
            return [x] * x
    ''',
    "tests/conftest.py": """
        import pytest

        from pkg.core import stored


        @pytest.fixture(scope="session")
        def store(tmp_path_factory):
            assert stored(1) == [1]
            folder = tmp_path_factory.mktemp("store")
            yield folder


        @pytest.fixture(scope="session")
        def broken_store():
            raise RuntimeError("no store")
    """,
    "tests/test_names.py": """
        import pytest

        from pkg.core import at_collection, named


        @pytest.mark.parametrize("x", ["a b", "a/b", "../x", "é", "a::b", "[x]", "line\\nend", "", "-k x", "日本"])
        def test_named(x):
            assert named(x) == x.upper()


        @pytest.mark.parametrize("x", [1, 2], ids=["one two/three", "ünï"])
        def test_given(x):
            assert named("a") == "A"
    """,
    "tests/test_marks.py": """
        import pytest

        from pkg.core import expected


        @pytest.mark.xfail
        def test_known():
            assert expected(2) == 5


        @pytest.mark.xfail
        def test_unexpected():
            assert expected(2) == 4


        @pytest.mark.xfail(strict=True)
        def test_strict():
            assert expected(2) == 4


        @pytest.mark.xfail(strict=True)
        def test_strict_known():
            assert expected(2) == 5


        def test_inside():
            if expected(2) != 4:
                pytest.xfail("known")


        def test_plain():
            assert expected(3) == 6
    """,
    "tests/test_parts.py": """
        import unittest

        from pkg.core import parts


        def test_fixture(subtests):
            with subtests.test("one"):
                assert parts(1) == 3


        class Base:
            def test_inherited(self):
                self.assertEqual(parts(2), 6)


        class TestParts(Base, unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.three = parts(1)

            def test_each(self):
                for x in (1, 2):
                    with self.subTest(x=x):
                        self.assertEqual(parts(x), 3 * x)

            @unittest.expectedFailure
            def test_expected(self):
                self.assertEqual(parts(1), 4)

            @unittest.skip("never")
            def test_skipped(self):
                self.assertEqual(parts(1), 3)
    """,
    "tests/test_session.py": """
        from pkg.core import plain


        def test_first(store):
            (store / "made").write_text("1")
            assert plain(1) == 2


        def test_second(store):
            assert plain(2) == 3


        def test_never(broken_store):
            assert plain(3) == 4
    """,
    "tests/test_made.py": """
        import pytest

        from pkg.core import at_collection

        CASES = at_collection(2)


        @pytest.mark.parametrize("x", [number + at for at, number in enumerate(CASES)])
        def test_made(x):
            assert x > 0
            assert len(at_collection(3)) == 3
    """,
    "tests/test_text.txt": """
        A doctest file.

        >>> from pkg.core import in_text
        >>> in_text(1)
        4
    """,
    "tests/test_never.py": "import nothing_of_that_name\n\n\ndef test_a():\n    pass\n",
    "tests/test_syntax.py": "def test_a(:\n    pass\n",
}


@pytest.fixture(scope="module")
def every(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The package, surveyed."""
    folder = write(tmp_path_factory.mktemp("suites") / "pkg-1", FILES)
    table = Table(str(folder), tmp_path_factory.mktemp("cache"), max_failing=0.5, held_out=0.0)
    yield table.open()
    table.close()


@pytest.fixture(scope="module")
def opened(every: Table) -> Opened:
    return every.do(every.game.opened())


def test_what_is_stable_and_what_is_left_out(opened: Opened) -> None:
    stable = {test.partition("[")[0].removeprefix("tests/test_") for test in opened.grounds.stable}
    assert stable == {
        "names.py::test_named",
        "names.py::test_given",
        "marks.py::test_inside",
        "marks.py::test_plain",
        "parts.py::TestParts::test_inherited",
        "parts.py::TestParts::test_each",
        "session.py::test_first",
        "session.py::test_second",
        "made.py::test_made",
        "text.txt::test_text.txt",
    }
    left_out = {test.removeprefix("tests/test_"): said for test, said in opened.grounds.left_out.items()}
    assert set(left_out) == {
        "marks.py::test_known",
        "marks.py::test_unexpected",
        "marks.py::test_strict",
        "marks.py::test_strict_known",
        "parts.py::test_fixture",
        "parts.py::TestParts::test_expected",
        "parts.py::TestParts::test_skipped",
        "session.py::test_never",
        "never.py",
        "syntax.py",
    }
    assert left_out["marks.py::test_known"] == "xfailed"
    assert "no store" in left_out["session.py::test_never"]
    assert "nothing_of_that_name" in left_out["never.py"]


def test_a_function_that_only_a_doctest_in_its_docstring_reaches_is_no_seed(every: Table) -> None:
    assert "documented" not in every.by_name
    assert set(every.by_name) == {"plain", "named", "expected", "parts", "stored", "in_text", "at_collection"}


PREFIX = "tests/test_"


@pytest.mark.parametrize(
    ("name", "reply", "failing"),
    [
        ("plain", "2|    return x + 2", {"session.py::test_first", "session.py::test_second"}),
        ("expected", "2|    return x * 2 if x != 3 else 0", {"marks.py::test_plain"}),
        # An expected failure inside is neither passed nor failed: it is not passed, and so it failed.
        ("expected", "2|    return x * 2 if x != 2 else 0", {"marks.py::test_inside"}),
        ("parts", "2|    return x * 3 if x != 1 else 0", {"parts.py::TestParts::test_each"}),
        # A session fixture is set up once, and counts for the first test that asks for it.
        ("stored", "2|    return x", {"session.py::test_first"}),
    ],
)
def test_a_bug_fails_what_reaches_it(every: Table, name: str, reply: str, failing: set[str]) -> None:
    minted = every.mint(name, reply)
    assert minted.task is not None, minted.verdict
    assert {test.removeprefix(PREFIX) for test, _ in minted.task.payload["failing"]} == failing
    fixed = every.by_name[name].payload["source"].splitlines()[1]
    assert every.judge(f"2|{fixed}", minted.task).reason == "passed"
    assert every.judge("2|    return None", minted.task).passed is False


def test_parameters_of_every_kind_decide(every: Table) -> None:
    minted = every.mint("named", "2|    return x.lower()")
    assert minted.task is not None, minted.verdict
    names = {test.removeprefix(PREFIX) for test, _ in minted.task.payload["failing"]}
    # A path and an empty text are the same in both cases.
    assert {"names.py::test_named[a b]", "names.py::test_named[a/b]", "names.py::test_named[a::b]"} <= names
    assert "names.py::test_named[\\xe9]" in names
    assert "names.py::test_given[one two/three]" in names
    assert any(name.startswith("names.py::test_given[") and "n" in name and "two" not in name for name in names)
    assert "names.py::test_named[]" not in names
    assert "names.py::test_named[\\u65e5\\u672c]" in {
        test.removeprefix(PREFIX) for test in minted.task.payload["tests"]
    }
    assert every.judge("2|    return x.upper()", minted.task).reason == "passed"
    assert every.judge("2|    return x.upper() if x != 'a/b' else x", minted.task).passed is False


def test_a_bug_in_a_session_fixture_says_setup(every: Table) -> None:
    minted = every.mint("stored", "2|    return x")
    assert minted.task is not None
    assert all(said.startswith("setup: ") for _, said in minted.task.payload["failing"])


def test_a_bug_that_stops_collection_is_refused(every: Table) -> None:
    assert every.mint("at_collection", "2|    return [x] // x").verdict.reason == "import_error"
    assert every.mint("at_collection", "2|    return None").verdict.reason == "collection_error"


def test_tests_that_a_bug_makes_vanish_failed(every: Table) -> None:
    minted = every.mint("at_collection", "2|    return [x] * (x - 1)")
    assert minted.task is not None, minted.verdict
    said = dict(minted.task.payload["failing"])
    assert "it did not run" in said.values()


def test_a_bug_that_only_a_text_shows_cannot_be_hidden(every: Table) -> None:
    # The engine takes test functions out, and a text has none.
    assert every.mint("in_text", "2|    return x + 4").verdict.reason == "weakening_hides_nothing"
