"""Proposals and attempts of every kind, judged by real tests in a real sandbox."""

from __future__ import annotations

import dataclasses
import time

import pytest

from selfplay.errors import UserError
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Stop, Task

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def task(table) -> Task:
    """`add` made to subtract."""
    minted = table.mint("add", "6|    total = a - b")
    assert minted.task is not None, minted.verdict
    return minted.task


def test_seeds_are_the_functions_that_stable_tests_reach(table) -> None:
    assert sorted(table.by_name) == ["Stack.__init__", "Stack.push", "add", "at_import", "count", "double"]
    add = table.by_name["add"].payload
    assert add["path"] == "pkg/core.py"
    assert add["doc"] == "The sum."
    assert add["tests"] == [f"tests/test_core.py::test_add[{p}]" for p in ("1-2", "3-4", "0-0")] + [
        "tests/test_core.py::test_double"
    ]
    assert table.by_name["double"].payload["source"].startswith("@functools.lru_cache\n")
    assert table.by_name["Stack.push"].payload["tests"] == [
        "tests/test_core.py::TestStack::test_push",
        "tests/test_core.py::test_fixture",
    ]


def test_views_hold_what_the_prompts_name(table, task) -> None:
    assert set(table.game.proposer_view(table.by_name["add"])) == {"function"}
    view = table.game.solver_view(task)
    assert "6|    total = a - b" in str(view["function"])
    assert view["tests"] == "test_add[1-2]: assert -1 == (1 + 2)\ntest_add[3-4]: assert -1 == (3 + 4)"
    assert view["hint"] == ""
    assert table.game.solver_view(task, terms={"hint": True}) == {**view, "hint": "look at line 6"}


def test_a_bug_becomes_a_task(table) -> None:
    minted = table.mint("add", "6|    total = a - b")
    assert minted.verdict.valid
    assert minted.verdict.reason == "valid"
    assert minted.verdict.why == "3 of 4 tests fail twice: test_add[1-2] (assert -1 == (1 + 2)) and 2 more"
    assert minted.verdict.reward is None
    assert "-    total = a + b\n+    total = a - b\n" in minted.verdict.evidence["diff"]
    assert minted.task is not None
    assert minted.task.payload["source"] == table.by_name["add"].payload["source"]
    assert len(minted.task.payload["tests"]) == 4
    for copy in ("6|    total = a - b  # the same", "6|    found = (a -  b)\n7|    return found"):
        again = table.mint("add", copy)
        assert again.task is not None
        assert again.task.id == minted.task.id
    other = table.mint("add", "6|    total = b - a").task
    assert other is not None
    assert [test for test, _ in other.payload["failing"]] == [test for test, _ in minted.task.payload["failing"]]
    assert other.id != minted.task.id


@pytest.mark.parametrize(
    ("name", "reply", "reason"),
    [
        ("add", "6|    total = b + a", "tests_still_pass"),
        ("add", "6|    total = a +", "edit_not_parsable"),
        ("add", "1|def add(a, b, c=1):", "edit_signature"),
        ("add", "6|    total = a + b", "edit_unchanged"),
        ("add", "99|    total = 1", "edit_out_of_range"),
        ("add", "6|    total = await a", "does_not_compile"),
        ("add", "no edit at all", "edit_no_edit"),
        ("add", "", "edit_empty"),
        ("add", "\x00\x01\x7fELF\ufffd\ud800", "edit_not_text"),
        ("add", "6|" + "a" * 100_000, "edit_too_long"),
        ("add", "6|    total = " + "(" * 1900, "edit_not_parsable"),
        ("add", "6|    import os; os._exit(0)", "crashed"),
        ("add", "6|    import os; os.kill(os.getpid(), 9)", "crashed"),
        ("count", "4|        i += 0", "cpu_limit"),
        ("at_import", "2|    return 1 // 0", "import_error"),
        ("at_import", "2|    import os; os._exit(0)", "crashed"),
    ],
)
def test_a_proposal_that_is_no_bug_is_refused_with_its_reason(table, name, reply, reason) -> None:
    minted = table.mint(name, reply)
    assert minted.task is None
    assert minted.verdict.reason == reason
    assert not minted.verdict.valid
    assert minted.verdict.fault is None
    assert minted.verdict.why
    assert table.grade(minted.verdict, []).reward == -1.0


def test_a_truncated_reply_is_refused(table, task) -> None:
    assert table.mint("add", "6|    total = a - b", stop=Stop.TOKENS).verdict.reason == "truncated"
    verdict = table.judge("6|    total = a + b", task, stop=Stop.TOKENS)
    assert (verdict.passed, verdict.reward, verdict.reason) == (False, -1.0, "truncated")


SLOW = {
    "slow.py": "def wait(x):\n    return x\n",
    "test_slow.py": "import slow\n\n\ndef test_wait():\n    assert slow.wait(1) == 1\n",
}


def test_a_test_that_is_late_is_tried_again_alone_and_then_counts(table_of) -> None:
    table = table_of(SLOW, seconds=2.0).open()
    started = time.monotonic()
    minted = table.mint("wait", "2|    import time; [time.sleep(0.01) for _ in range(6000)]")
    assert minted.verdict.reason == "timeout"
    assert 6.0 <= time.monotonic() - started < 30.0


def test_a_test_that_hangs_counts_at_once(table_of) -> None:
    table = table_of(SLOW, seconds=8.0).open()
    started = time.monotonic()
    minted = table.mint("wait", "2|    import threading; threading.Event().wait()")
    assert minted.verdict.reason == "timeout"
    assert 6.0 <= time.monotonic() - started < 24.0, "not twice, the second time for 16 seconds"


@pytest.mark.parametrize(
    ("reply", "passed", "reason"),
    [
        ("6|    total = a + b", True, "passed"),
        ("6|    total = b + a", True, "passed"),
        ("6|    total = a - -b", True, "passed"),
        ("6|    total = a - b + 0", False, "tests_fail"),
        ("6|    total = a + b if a else 1", False, "tests_fail"),
        ("7|    return total + 2 * b if a != 4 else 0", False, "tests_fail"),
        ("6|    total = a - b", False, "edit_unchanged"),
        ("6|    import os; os._exit(0)", False, "crashed"),
        ("6|    import pytest; pytest.skip()", False, "tests_fail"),
        ("I do not know", False, "edit_no_edit"),
    ],
)
def test_an_attempt_is_judged_by_all_tests_that_reach_the_function(table, task, reply, passed, reason) -> None:
    verdict = table.judge(reply, task)
    assert (verdict.passed, verdict.reason) == (passed, reason), verdict
    assert verdict.reward == (1.0 if passed else -1.0)
    assert verdict.why


def test_a_repair_is_compared_with_the_original(table, task) -> None:
    compared = table.judge("6|    total = sum((a, b))", task).evidence["differential"]
    assert compared["total"] > 100
    assert (compared["different"], compared["why"]) == (0, "")
    assert "differential" not in table.judge("6|    total = a + b", task).evidence
    assert "differential" not in table.judge("6|    total = a * b", task).evidence


def test_a_table_of_the_visible_inputs_is_not_decided(table, task) -> None:
    verdict = table.judge("6|    total = {(1, 2): 3, (3, 4): 7, (0, 0): 0, (4, 4): 8}.get((a, b))", task)
    assert (verdict.passed, verdict.reward, verdict.valid, verdict.reason) == (None, None, True, "suspicious")
    assert "answers differ from the original function, first add(" in verdict.why
    assert verdict.fault is None
    assert verdict.evidence["differential"]["why"] == verdict.why


def test_a_suspicious_repair_is_left_undecided_without_a_fault(table, task) -> None:
    verdict = table.judge("6|    import gc; total = a + b", task)
    assert (verdict.passed, verdict.reward, verdict.fault, verdict.valid) == (None, None, None, True)
    assert verdict.reason == "suspicious"
    assert verdict.why == "looks into the interpreter: gc"
    assert verdict.evidence["flags"] == ["looks into the interpreter: gc"]


def test_a_repair_that_breaks_another_test_says_so(table, task) -> None:
    verdict = table.judge("6|    total = a + b if a or b else 5", task)
    assert verdict.why == "test_add[0-0] (assert 5 == (0 + 0)) fails now, and passed before"


def test_subtests_count(table) -> None:
    minted = table.mint("Stack.push", "3|    return 1")
    assert minted.task is not None
    assert [test for test, _ in minted.task.payload["failing"]] == ["tests/test_core.py::TestStack::test_push"]


def test_the_proposer_is_paid_from_decided_attempts_only(table, task) -> None:
    minted = table.mint("add", "6|    total = a - b").verdict
    right, wrong = table.judge("6|    total = a + b", task), table.judge("nothing", task)
    undecided = dataclasses.replace(wrong, passed=None, reward=None)
    graded = table.grade(minted, [right, right, *[wrong] * 4, undecided, undecided])
    assert graded.reward == pytest.approx(1 - 1.8 / 3)
    assert graded.parts == {"solve_rate": pytest.approx(1 / 3)}
    assert table.grade(minted, [right] * 5 + [undecided] * 3).reward is None


def test_a_broken_sandbox_decides_nothing(table, task, monkeypatch) -> None:
    async def create(spec):
        raise SandboxInfraError("no sandbox today")

    monkeypatch.setattr(table.game._opening.provider, "acquire", create)
    for verdict in (table.mint("add", "6|    total = 7").verdict, table.judge("6|    total = 7", task)):
        assert verdict.reward is None
        assert verdict.passed is None
        assert verdict.fault is not None
        assert verdict.fault.culprit == "sandbox"
        assert "no sandbox today" in verdict.why


def test_the_dev_set_is_made_of_train_seeds_and_kept_out_of_the_examples(table) -> None:
    seeds, tasks = table.do(table.game.dev())
    assert len(seeds) == 2
    assert tasks
    assert {task.seed_id for task in tasks} <= {seed.id for seed in seeds}
    examples = table.game.examples(seed=0, first=0, count=40)
    assert examples == (
        *table.game.examples(seed=0, first=0, count=20),
        *table.game.examples(seed=0, first=20, count=20),
    )
    assert {example.role for example in examples} == {"injector", "repairer"}
    dev = {f"{seed.payload['path']}::{seed.payload['qualname']}" for seed in seeds}
    assert not dev & {example.source for example in examples}


def test_an_example_is_asked_as_its_role_is(table, monkeypatch) -> None:
    monkeypatch.setattr(table.game, "solver", dataclasses.replace(table.game.solver, template="chat"))
    found = {(example.role, example.template) for example in table.game.examples(seed=0, first=0, count=20)}
    assert found == {("injector", "plain"), ("repairer", "chat")}


def test_the_same_source_gives_the_same_seeds_and_the_cache_saves_the_survey(table_of, package, tmp_path) -> None:
    first = table_of(str(package)).open()
    (survey,) = (tmp_path / "cache" / "surveys").glob("*.json")
    before = survey.stat().st_mtime_ns
    second = table_of(str(package)).open()
    assert first.by_name == second.by_name
    assert survey.stat().st_mtime_ns == before
    assert sorted(seed.split for seed in first.by_name.values()) == ["held_out"] * 2 + ["train"] * 4


def test_repairers_see_failing_tests_of_rehearsed_examples(table_of, package) -> None:
    table = table_of(str(package), rehearsed=8, package_share=1.0, held_out=0.0, dev_seeds=0).open()
    examples = [e for e in table.game.examples(seed=0, first=0, count=8) if e.role == "repairer"]
    assert examples
    assert all("test_" in example.prompt for example in examples)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": "def f():\n    return 1\n", "test_a.py": "def test_a():\n    assert 0\n"}, "no test of"),
        ({"a.py": "def f():\n    return 1\n", "test_a.py": "import nowhere\n"}, "No module named 'nowhere'"),
        ({"a.py": "def f():\n    return 1\n", "test_a.py": "A = 1\n"}, "no test that passes"),
        ({"a.py": "def f():\n    return 1\n", "test_a.py": "def test_a():\n    pass\n"}, "no function of"),
        (
            {
                "a.py": "def f():\n    return 1\n",
                "test_a.py": "import a\n\ndef test_a():\n    assert a.f()\n\ndef test_b():\n    assert not a.f()\n",
            },
            "1 of 2 tests",
        ),
    ],
)
def test_a_repository_that_cannot_be_played_is_refused(table_of, files, said) -> None:
    with pytest.raises(UserError, match=said):
        table_of(files).open()


@pytest.mark.slow
def test_the_real_package_is_played(table_of) -> None:
    table = table_of("pypi:toolz==1.2.0").open()
    assert len(table.by_name) > 100
    minted = table.mint("groupby", "37|        rv = {}")
    assert minted.verdict.why
    seeds, tasks = table.do(table.game.dev())
    assert len(tasks) >= len(seeds) - 2
    for task in tasks:
        assert table.judge(_undo(task), task).passed


def _undo(task: Task) -> str:
    """The edit that restores the original function."""
    old, new = task.payload["source"].splitlines(), task.payload["buggy"].splitlines()
    margin = len(old[0]) - len(old[0].lstrip())
    return "\n".join(f"{n}|{a[margin:]}" for n, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b)
