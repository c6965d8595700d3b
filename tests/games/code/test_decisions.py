"""Verdicts in words: what each decision becomes, and what the machine's failures never become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from selfplay.games import Minted
from selfplay.games.code import decisions
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.edits import Edit
from selfplay.games.code.verdict import Decision
from selfplay.games.code.verify import Ended, Run
from selfplay.games.rewards import ALONE, Beside, PlusMinusOne, SelfPlaySwe
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Task, Verdict, record
from tests.games.code.conftest import trajectory

PROPOSAL, ATTEMPT = trajectory("", stage="propose"), trajectory("", stage="attempt")
FAILING = {"t.py::test_a": "assert 1 == 2", "t.py::test_b": "KeyError"}
TASK = Task(id="task", game="code", seed_id="s", key="k", payload={}, split="train", step=0)
WORTH = PlusMinusOne()


@record
class Bug:
    """As much of a bug as a verdict looks at."""

    failing: Mapping[str, str]
    tests: tuple[str, ...]


BUG = Bug(failing=FAILING, tests=("t.py::test_a", "t.py::test_b", "t.py::test_c"))


def minted(finding: Bug | Problem | Exception, made: Task | Problem | Exception = TASK) -> Minted:
    async def of(what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    def make(bug: Bug) -> Awaitable[Task | Problem]:
        return of(made)

    return asyncio.run(decisions.minted(PROPOSAL, of(finding), make=make, evidence=lambda bug: {"n": len(bug.tests)}))


def test_a_bug_and_its_task() -> None:
    found = minted(BUG)
    assert found.task is TASK
    assert (found.verdict.stage, found.verdict.valid, found.verdict.passed, found.verdict.reward) == (
        *("mint", True),
        *(None, None),
    )
    assert found.verdict.why == "2 of 3 tests fail twice: test_a (assert 1 == 2) and 1 more"
    assert (found.verdict.task_id, found.verdict.evidence) == ("task", {"n": 3})


def test_a_problem_of_the_bug_or_of_its_task_is_a_refusal() -> None:
    problem = Problem(reason=Reason.FLAKY, why="sometimes", failing=FAILING, edit=Edit(lines=((2, "x"),)))
    for found in (minted(problem), minted(BUG, problem)):
        verdict = found.verdict
        assert (found.task, verdict.valid, verdict.reward, verdict.reason) == (None, False, None, "flaky")
        assert verdict.evidence["failing"] == [list(pair) for pair in FAILING.items()]
        assert verdict.evidence["edit"] == "2|x"
    assert decisions.refused(PROPOSAL, Problem(reason="r", why="w")).evidence == {}


@pytest.mark.parametrize("when", ["looking", "making"])
def test_a_failure_of_the_machine_decides_nothing(when: str) -> None:
    error = SandboxInfraError("the engine is gone", hint="start it")
    found = minted(error) if when == "looking" else minted(BUG, error)
    assert (found.task, found.verdict.reward, found.verdict.reason) == (None, None, Reason.FAULT)
    fault = found.verdict.fault
    assert fault is not None
    assert (fault.culprit, fault.message, fault.detail) == ("sandbox", "the engine is gone", "start it")


def decided(kind: Any, passed: bool | None, *, failed: Mapping[str, str] | None = None, **more: Any) -> Verdict:
    ended = Ended.TIMEOUT if kind == "unfinished" else Ended.COMPLETED
    run = Run(key="key", ended=ended, passed=("t.py::test_c",), failed={}, detail="too slow", blamed=())
    decision = Decision(passed=passed, kind=kind, why="odd", run=run, failed=failed or {}, **more)
    return decisions.decided(ATTEMPT, decision, failing=list(FAILING), path="a.py", evidence={"diff": "d"}, worth=WORTH)


def test_an_attempt_by_what_became_of_it() -> None:
    whole = decided("passed", True)
    assert (whole.passed, whole.reason, whole.reward, whole.valid) == (True, Reason.PASSED, 1.0, True)
    assert whole.evidence == {"diff": "d", "run": "key"}
    still = decided("failed", False, failed={"t.py::test_a": "no"})
    assert (still.passed, still.reason, still.why) == (False, Reason.TESTS_FAIL, "test_a (no) still fails")
    other = decided("failed", False, failed={"t.py::test_c": "no"})
    assert other.why == "test_c (no) fails now, and passed before"
    late = decided("unfinished", False)
    assert (late.passed, late.reason, late.reward) == (False, Reason.TIMEOUT, -1.0)


def test_what_cannot_be_believed() -> None:
    forged = decided("forged", False)
    assert (forged.passed, forged.reason, forged.reward, forged.valid) == (False, Reason.FORGED, -1.0, False)
    odd = decided("suspicious", None, flags=("exits",), dropped={"conftest.py": "settings"})
    assert (odd.passed, odd.reason, odd.reward, odd.valid) == (None, Reason.SUSPICIOUS, None, True)
    assert (odd.evidence["flags"], odd.evidence["dropped"]) == (["exits"], {"conftest.py": "settings"})


def graded(verdict: Verdict, *passed: bool | None, beside: Beside = ALONE) -> Verdict:
    known = [decisions.judged(ATTEMPT, one, "r", "w", {}, worth=WORTH) for one in passed]
    return decisions.graded(PROPOSAL, verdict, known, worth=SelfPlaySwe(), beside=beside)


def test_a_proposal_is_paid_by_its_solve_rate() -> None:
    verdict = minted(BUG).verdict
    half = graded(verdict, True, True, True, False, False, False, None)
    assert (half.stage, half.reason, half.task_id) == ("grade", "graded", "task")
    assert half.parts == {"solve_rate": 0.5}
    assert half.why == "3 of 6 attempts repaired it"
    assert half.reward == SelfPlaySwe()(True, 3, 6, ALONE)


def test_who_is_not_paid() -> None:
    assert graded(minted(BUG).verdict).reward is None
    assert graded(minted(BUG).verdict).reason == "undecided"
    control = minted(Problem(reason=Reason.CONTROL_GOLD, why="w")).verdict
    assert graded(control).reward is None
    assert graded(minted(SandboxInfraError("gone")).verdict).reward is None
    refused = graded(minted(Problem(reason=Reason.FLAKY, why="w")).verdict)
    assert (refused.reward, refused.reason, refused.parts) == (SelfPlaySwe().invalid, "flaky", {})
