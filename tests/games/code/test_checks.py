"""SSR's seven checks and what it lacks, on a small package in a real sandbox."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from selfplay.games.code import checks
from selfplay.games.code.artifact import Artifact, contents, diff_of, on_top
from selfplay.games.code.bugs import Problem
from selfplay.games.code.checks import Case, Thresholds, prove
from selfplay.games.code.opened import Opened
from selfplay.games.code.repeats import Repeats
from selfplay.games.code.verify import Budget, Verifier
from tests.games.code.conftest import Table, write

pytestmark = pytest.mark.bubblewrap

BUDGET = Budget(cpu_seconds=10.0, seconds=60.0)
FILES = {
    "pkg/__init__.py": "",
    "pkg/a.py": "def one(x):\n    y = x\n    z = 1\n    w = 0\n    return y + z + w\n",
    "pkg/b.py": "def two(x):\n    return x * 2\n",
    "pkg/c.py": "def three(x):\n    return x * 3\n",
    "tests/test_ab.py": """
        from pkg.a import one
        from pkg.b import two


        def test_one():
            assert one(1) == 2


        def test_two():
            assert two(2) == 4


        def test_both():
            assert one(two(1)) == 3


        def test_order():
            assert list({"a", "b", "c", "d", "e", "f", "g", "h"}) == ORDER
            assert one(1) == 2


        ORDER = list({"a", "b", "c", "d", "e", "f", "g", "h"})
    """,
    "tests/test_seed.py": """
        import os

        from pkg.a import one


        def test_only_with_this_seed():
            assert os.environ["PYTHONHASHSEED"] == "0"
            assert one(1) == 2
    """,
    "tests/test_broken.py": "import nothing_of_that_name\n\n\ndef test_never():\n    pass\n",
}
ORACLE = ("tests/test_ab.py",)
ONE, TWO, BOTH, ORDER = (f"tests/test_ab.py::test_{name}" for name in ("one", "two", "both", "order"))


@pytest.fixture(scope="module")
def small(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The package, surveyed."""
    folder = write(tmp_path_factory.mktemp("checks") / "pkg-1", FILES)
    table = Table(str(folder), tmp_path_factory.mktemp("cache"), max_failing=0.5, held_out=0.0)
    yield table.open()
    table.close()


@pytest.fixture(scope="module")
def opened(small: Table) -> Opened:
    return small.do(small.game.opened())


@pytest.fixture(scope="module")
def artifact_of(opened: Opened) -> Callable[..., Artifact]:
    """An artifact with these changes of texts, and a weakening that takes the tests out that it names."""

    def made(*changes: tuple[str, str, str], weak: tuple[str, str, str] | None = None, **others: Any) -> Artifact:
        def diff(chosen: tuple[tuple[str, str, str], ...]) -> str:
            clean = contents(opened.verifier.repository, [path for path, _, _ in chosen])
            new = dict(clean)
            for path, old, text in chosen:
                before = new[path]
                assert before is not None
                assert old.encode() in before
                new[path] = before.replace(old.encode(), text.encode())
            return diff_of(clean, new)

        weak = weak or ("tests/test_ab.py", "assert one(1) == 2", "one(1)")
        return Artifact(**{"test_files": ORACLE, "bug": diff(changes), "weakening": diff((weak,)), **others})

    return made


Prove = Callable[..., tuple[Artifact, Case] | Problem]
Make = Callable[..., Artifact]
Text = tuple[str, str, str]
"""Path, old text, new text."""
Tables = Callable[..., Table]


@pytest.fixture(scope="module")
def proved(small: Table, opened: Opened) -> Prove:
    def run(artifact: Artifact, **thresholds: float) -> tuple[Artifact, Case] | Problem:
        grounds = dataclasses.replace(opened.grounds, thresholds=Thresholds(**thresholds))  # type: ignore[arg-type]
        return small.do(prove(artifact, grounds=grounds, budget=lambda tests: BUDGET))

    return run


MINUS = ("pkg/a.py", "return y + z + w", "return y - z + w")
TRIPLE = ("pkg/b.py", "x * 2", "x * 3")
DEAD = ("pkg/c.py", "x * 3", "x * 4")


def test_a_bug_in_two_files_is_proved(artifact_of: Make, proved: Prove) -> None:
    found = proved(artifact_of(MINUS, TRIPLE))
    assert isinstance(found, tuple), found
    artifact, case = found
    assert set(case.failing) == {ONE, TWO, BOTH, ORDER}
    assert set(case.tests) == {ONE, TWO, BOTH, ORDER}
    assert artifact == artifact_of(MINUS, TRIPLE)


@pytest.mark.parametrize(
    ("changes", "others", "thresholds", "reason"),
    [
        ([MINUS], {"test_files": ()}, {}, "test_files_missing"),
        ([MINUS], {"test_files": ("tests/none.py",)}, {}, "test_files_missing"),
        ([MINUS], {"test_files": ("pkg/a.py",)}, {}, "test_files_missing"),
        ([MINUS], {"test_files": ("tests/test_seed.py",)}, {}, "weakening_outside"),
        ([MINUS], {"test_files": (*ORACLE, "tests/test_broken.py")}, {}, "no_results"),
        ([MINUS], {}, {"min_passing_tests": 5}, "too_few_passing"),
        ([MINUS], {}, {"min_changed_files": 2}, "too_few_files"),
        ([DEAD], {}, {}, "tests_still_pass"),
        ([TRIPLE], {}, {"min_failing_tests": 3}, "too_few_failing"),
        ([("pkg/a.py", "def one(x):", "import nothing\ndef one(x):")], {}, {}, "import_error"),
        ([TRIPLE], {"weak": ("tests/test_ab.py", "one(1) == 2", "one(1)")}, {}, "weakening_hides_nothing"),
        ([TRIPLE], {"weak": ("tests/test_ab.py", "import two", "import no")}, {}, "weakening_hides_nothing"),
    ],
)
def test_each_check_has_its_reason(
    artifact_of: Make, proved: Prove, changes: list[Text], others: Any, thresholds: Any, reason: str
) -> None:
    found = proved(artifact_of(*changes, **others), **thresholds)
    assert isinstance(found, Problem), found
    assert found.reason == reason
    assert found.why


def test_the_checks_stand_in_the_order_of_the_paper() -> None:
    numbers = [(check.__doc__ or "")[0] for check in checks.CHECKS]
    assert [number for number in numbers if number.isdecimal()] == list("1234567")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("tests/test_ab.py", "def test_two():\n    assert two(2) == 4\n", ""), "gone"),
        (("tests/test_ab.py", "    assert two(2) == 4\n", "    import pytest\n    pytest.skip()\n"), "skipped"),
        (("tests/test_ab.py", "    assert two(2) == 4\n", "    two(2)\n"), "passes"),
    ],
)
def test_a_test_is_hidden_where_it_is_gone_skipped_or_passes(
    artifact_of: Make, proved: Prove, change: Text, message: str
) -> None:
    assert isinstance(proved(artifact_of(TRIPLE, weak=change)), tuple), message


def test_parts_that_do_nothing_are_dropped(artifact_of: Make, proved: Prove) -> None:
    comment = ("pkg/a.py", "y = x\n", "y = x  # of no use\n")
    found = proved(artifact_of(comment, MINUS, DEAD))
    assert isinstance(found, tuple), found
    artifact, case = found
    assert artifact.bug == artifact_of(MINUS).bug
    assert len(case.dropped) == 2
    assert "# of no use" in case.dropped[0]
    assert "x * 4" in case.dropped[1]


def test_parts_that_rest_on_each_other_stay(artifact_of: Make, proved: Prove) -> None:
    parts = artifact_of(("pkg/a.py", "y = x\n", "v = -x\n"), ("pkg/a.py", "return y + z", "return v + z"))
    found = proved(parts)
    assert isinstance(found, tuple), found
    assert found[0].bug == parts.bug
    assert not found[1].dropped


def test_of_two_parts_that_each_do_it_one_stays(artifact_of: Make, proved: Prove) -> None:
    found = proved(artifact_of(("pkg/a.py", "w = 0", "w = 7"), ("pkg/a.py", "y = x\n", "y = x + 9\n")))
    assert isinstance(found, tuple), found
    assert len(found[1].dropped) == 1


def test_a_file_that_changes_nothing_is_refused(
    small: Table, opened: Opened, artifact_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the check that drops such parts before.
    monkeypatch.setattr(checks, "CHECKS", tuple(one for one in checks.CHECKS if one is not checks.drop_dead_hunks))
    found = small.do(prove(artifact_of(MINUS, DEAD), grounds=opened.grounds, budget=lambda tests: BUDGET))
    assert isinstance(found, Problem)
    assert (found.reason, found.why) == ("dead_file", "with pkg/c.py put back, every failing test still fails")


def test_a_bug_that_follows_the_hash_seed_is_flaky(artifact_of: Make, proved: Prove) -> None:
    seeded = ("pkg/a.py", "w = 0", "import os; w = int(os.environ['PYTHONHASHSEED'] == '0')")
    found = proved(artifact_of(seeded))
    assert isinstance(found, Problem)
    assert found.reason == "flaky"


def test_a_test_that_follows_the_hash_seed_decides_nothing(artifact_of: Make, proved: Prove) -> None:
    found = proved(artifact_of(MINUS, test_files=(*ORACLE, "tests/test_seed.py")))
    assert isinstance(found, tuple), found
    assert "tests/test_seed.py::test_only_with_this_seed" not in {*found[1].tests, *found[1].failing}
    only = artifact_of(
        MINUS, test_files=("tests/test_seed.py",), weak=("tests/test_seed.py", "assert one(1) == 2", "one(1)")
    )
    refused = proved(only)
    assert isinstance(refused, Problem)
    assert refused.reason == "flaky"


def test_a_second_order_bug_is_proved_like_a_first(opened: Opened, artifact_of: Make, proved: Prove) -> None:
    first = artifact_of(MINUS)
    attempt = {"pkg/a.py": b"def one(x):\n    y = x\n    z = 1\n    w = 0\n    return y + z + w + 5\n"}
    second = on_top(first, attempt=attempt, repository=opened.verifier.repository)
    assert isinstance(second, Artifact)
    found = proved(second)
    assert isinstance(found, tuple), found
    assert found[0].order == 2
    weaker = on_top(
        first, attempt={"pkg/a.py": b"def one(x):\n    return 1 + x\n"}, repository=opened.verifier.repository
    )
    assert isinstance(weaker, Artifact)
    refused = proved(weaker)
    assert isinstance(refused, Problem)
    assert refused.reason == "tests_still_pass"


def test_a_bug_may_break_a_part_of_the_suite_only(table_of: Tables) -> None:
    tests = "\n\n".join(f"def test_{n}():\n    assert {'f' if n < 24 else 'g'}(1) == 1" for n in range(40))
    files = {
        "m.py": "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n",
        "test_m.py": f"from m import f, g\n\n\n{tests}\n",
    }
    table = table_of(files, held_out=0.0).open()
    minted = table.mint("f", "2|    return x + 1")
    assert minted.verdict.reason == "breaks_too_many"
    assert minted.verdict.why == "24 of the suite's 40 tests fail, and at most 20 may"
    assert table.mint("g", "2|    return x + 1").verdict.reason == "valid"
    assert table.mint("f", "2|    return x + (x > 5)").verdict.reason == "tests_still_pass"


class Counted(Counter[str]):
    """Sandboxes and sessions since it was asked last."""

    def taken(self) -> tuple[int, int]:
        found = self["sandboxes"], self["sessions"]
        self.clear()
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts what is really made and run."""
    count = Counted()
    sandbox, execute, repeat = Verifier.sandbox, Verifier.execute, Repeats._execute

    def spy(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            count[name] += 1
            return function(*arguments, **named)

        return run

    monkeypatch.setattr(Verifier, "sandbox", spy("sandboxes", sandbox))
    monkeypatch.setattr(Verifier, "execute", spy("sessions", execute))
    monkeypatch.setattr(Repeats, "_execute", spy("sessions", repeat))
    return count


def test_what_a_proposal_costs(table_of: Tables, counted: Counted) -> None:
    files = {
        "m.py": "def f(x):\n    y = x\n    return y\n\n\ndef g(x):\n    return x\n",
        "test_m.py": "import m\n\n\ndef test_f():\n    assert m.f(1) == 1\n\n\ndef test_g():\n    assert m.g(2) == 2\n",
    }
    table = table_of(files, held_out=0.0).open()
    counted.taken()
    costs: Mapping[str, tuple[int, int]] = {}
    for reply in ("nothing", "3|    return y + 0", "3|    return y + 1", "3|    return y + 2"):
        table.mint("f", reply)
        costs = {**costs, reply: counted.taken()}
    assert costs == {
        "nothing": (0, 0),
        "3|    return y + 0": (1, 1),
        # Two runs with the bug, the canaries' on the clean tree, both controls' one; three clean runs in two sandboxes.
        "3|    return y + 1": (6, 7),
        # The clean runs are the function's.
        "3|    return y + 2": (4, 4),
    }


def test_the_weakening_that_the_engine_makes_hides_the_bug(table_of: Tables, tmp_path: Path) -> None:
    files = {
        "m.py": "def f(x):\n    return x\n",
        "test_m.py": textwrap.dedent(
            """
            import m


            class TestF:
                def test_f(self):
                    assert m.f(1) == 1


            def test_other():
                assert m.f(0) == 0
            """
        ),
    }
    table = table_of(files, held_out=0.0).open()
    minted = table.mint("f", "2|    return x + (x > 0)")
    assert minted.task is not None, minted.verdict
    told = minted.task.payload["artifact"]
    assert told["test_files"] == ["test_m.py"]
    assert "-    def test_f(self):\n" in told["weakening"]
    assert "+    pass\n" in told["weakening"]
    # What the engine made passes the checks of an artifact that is brought, where the weakening is run.
    opened = table.do(table.game.opened())
    artifact = Artifact(test_files=tuple(told["test_files"]), bug=told["bug"], weakening=told["weakening"])
    found = table.do(prove(artifact, grounds=opened.grounds, budget=lambda tests: BUDGET))
    assert isinstance(found, tuple), found
    assert found[0] == artifact
