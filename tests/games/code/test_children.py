"""Second-order bugs: what a failed repair left is proved by real tests in a real sandbox, or refused and said why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.games import Minted
from selfplay.games.code import bugs, rejudge
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Stop, Task, Trajectory
from tests.games.code.conftest import trajectory

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def parent(table) -> Task:
    """`add` made to subtract."""
    minted = table.mint("add", "6|    total = a - b")
    assert minted.task is not None, minted.verdict
    return minted.task


def failed(reply: str, *, stop: Stop = Stop.DONE) -> Trajectory:
    return replace(trajectory(reply, stage="attempt", stop=stop), id="failed")


def mutate(table, parent: Task, reply: str, *, stop: Stop = Stop.DONE) -> Minted:
    return table.do(table.game.mutate(parent, failed(reply, stop=stop), step=3))


def test_a_failed_repair_becomes_a_bug_of_its_own(table, parent) -> None:
    reply = "7|    return total if a < 3 else total + 2 * b"
    assert table.judge(reply, parent).reason == "tests_fail"
    minted = mutate(table, parent, reply)
    verdict, child = minted.verdict, minted.task
    assert child is not None, verdict
    assert (verdict.stage, verdict.trajectory_id, verdict.valid, verdict.reward) == ("mint", "failed", True, None)
    assert verdict.task_id == child.id
    assert (child.parent_id, child.step, child.seed_id, child.split) == ("failed", 3, parent.seed_id, parent.split)
    assert child.key != parent.key
    payload = child.payload
    assert payload["source"] == parent.payload["source"]
    assert "    total = a - b\n    return total if a < 3 else total + 2 * b\n" in payload["buggy"]
    # note: the parent's bug broke three tests, and this one only one.
    assert [test for test, _ in payload["failing"]] == ["tests/test_core.py::test_add[1-2]"]
    assert len(parent.payload["failing"]) == 3
    assert "-@pytest.mark.parametrize" in payload["artifact"]["weakening"]
    assert set(table.game.solver_view(child)) == set(table.game.solver_view(parent))
    assert "7|    return total if a < 3" in str(table.game.solver_view(child)["function"])
    assert verdict.evidence["diff"].count("\n+") == 2 + 1
    assert table.do(rejudge.proved(table.game, child)).holds


def test_a_child_is_repaired_and_not_by_what_it_is(table, parent) -> None:
    child = mutate(table, parent, "7|    return total if a < 3 else total + 2 * b").task
    assert child is not None
    right = table.judge("6|    total = a + b\n7|    return total", child)
    assert (right.passed, right.reason) == (True, "passed")
    assert table.judge("6|    total = a + b", child).passed is False
    assert table.judge("7|    return total", child).passed is False


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [
        ("6|    total = a + b", Stop.DONE, "same_as_original"),
        ("6|    total = b + a", Stop.DONE, "tests_still_pass"),
        ("6|    total = a - b  # the same", Stop.DONE, "edit_unchanged"),
        ("no edit", Stop.DONE, "edit_no_edit"),
        ("7|    return", Stop.TOKENS, "truncated"),
        ("6|    total = await a", Stop.DONE, "does_not_compile"),
        ("6|    import os; os._exit(0)", Stop.DONE, "crashed"),
    ],
)
def test_what_is_no_child_is_refused_with_its_reason(table, parent, reply, stop, reason) -> None:
    minted = mutate(table, parent, reply, stop=stop)
    assert minted.task is None
    assert (minted.verdict.valid, minted.verdict.reason, minted.verdict.fault) == (False, reason, None)
    assert minted.verdict.why
    assert (minted.verdict.stage, minted.verdict.reward, minted.verdict.task_id) == ("mint", None, None)


FAR = {
    "far.py": """
        def far(a):
            b = a + 1
            c = b + 2
            d = c + 3
            e = d + 4
            return [a, b, c, d, e]
    """,
    "test_far.py": """
        import far
        import pytest


        @pytest.mark.parametrize("at", range(5))
        def test_far(at):
            assert far.far(0)[at] == [0, 1, 3, 6, 10][at]
    """,
}


def bug(table, reply: str) -> Task:
    minted = table.mint("far", reply)
    assert minted.task is not None, minted.verdict
    return minted.task


def test_what_no_repair_could_put_back_or_what_changes_nothing_is_no_child(table_of) -> None:
    table = table_of(FAR, held_out=0.0, dev_seeds=0).open()
    parent = bug(table, "2|    b = a + 5\n3|    c = 7\n4|    d = 9")
    minted = mutate(table, parent, "5|    e = 1")
    assert (minted.task, minted.verdict.reason) == (None, "too_far")
    assert minted.verdict.why == "4 lines differ from the original, and a repair edits at most 3"
    assert mutate(table, parent, "4|    d = 10").task is not None
    minted = mutate(table, bug(table, "2|    b = a + 5"), "5|    e = d + 4 + 0")
    assert (minted.task, minted.verdict.reason) == (None, "same_as_parent")


def test_a_broken_sandbox_decides_nothing_about_a_child(table, parent, monkeypatch) -> None:
    async def create(spec):
        raise SandboxInfraError("no sandbox today")

    monkeypatch.setattr(table.game._opening.provider, "acquire", create)
    minted = mutate(table, parent, "6|    total = 7")
    assert minted.task is None
    assert minted.verdict.fault is not None
    assert (minted.verdict.reward, minted.verdict.passed) == (None, None)


def test_a_child_fails_a_control_like_any_other_bug(table, parent, monkeypatch) -> None:
    async def why(verifier, payload, *, code, budget):
        return bugs.Problem(reason=bugs.Reason.CONTROL_GOLD, why="the clean code is not accepted")

    monkeypatch.setattr("selfplay.games.code.controls.why_quarantined", why)
    minted = mutate(table, parent, "6|    total = 8")
    assert (minted.task, minted.verdict.reason) == (None, bugs.Reason.CONTROL_GOLD)
