"""Verdicts of the code game, in both of its forms: what was decided, in one sentence, with what it rests on.

What is covered: a refused proposal, an attempt that tests decided, a proposal's worth, and what the machine left
undecided. What is not: deciding (`checks`, `verdict`).

Example:
    >>> some({"tests/test_a.py::test_b": "assert 1 == 2", "tests/test_a.py::test_c": "KeyError"})
    'test_b (assert 1 == 2) and 1 more'
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from selfplay import games
from selfplay.games import Minted, grading
from selfplay.games.code import bugs
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.verdict import Decision
from selfplay.games.rewards import Beside, ProposerReward, SolverReward
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Fault, Task, Trajectory, Verdict, VerdictStage


class Proven(Protocol):
    """A bug of either form."""

    @property
    def failing(self) -> Mapping[str, str]: ...

    @property
    def tests(self) -> Sequence[str]: ...


P = TypeVar("P", bound=Proven)


async def minted(
    origin: Trajectory,
    finding: Awaitable[P | Problem],
    *,
    make: Callable[[P], Awaitable[Task | Problem]],
    evidence: Callable[[P], Mapping[str, Any]],
) -> Minted:
    """What became of a proposal, or of a failed attempt as a child's origin: a task where `make` makes one."""
    try:
        found = await finding
        if isinstance(found, Problem):
            return Minted(verdict=refused(origin, found), task=None)
        task = await make(found)
    except SandboxInfraError as error:
        return Minted(verdict=undecided(origin, "mint", error), task=None)
    if isinstance(task, Problem):
        return Minted(verdict=refused(origin, task), task=None)
    verdict = Verdict(
        trajectory_id=origin.id,
        stage="mint",
        valid=True,
        passed=None,
        reward=None,
        reason=Reason.VALID,
        why=f"{len(found.failing)} of {len(found.tests)} tests fail twice: {some(found.failing)}",
        task_id=task.id,
        evidence=evidence(found),
    )
    return Minted(verdict=verdict, task=task)


def refused(origin: Trajectory, problem: Problem) -> Verdict:
    """A proposal, or a child's parent, of which no task came."""
    evidence: dict[str, Any] = {"edit": problem.edit.text} if problem.edit else {}
    if problem.failing:
        evidence["failing"] = [[test, said] for test, said in problem.failing.items()]
    return Verdict(
        trajectory_id=origin.id,
        stage="mint",
        valid=False,
        passed=None,
        reward=None,
        reason=problem.reason,
        why=problem.why,
        evidence=evidence,
    )


def undecided(trajectory: Trajectory, stage: VerdictStage, error: SandboxInfraError) -> Verdict:
    """No decision: the machine failed, not the player."""
    fault = Fault(culprit="sandbox", where="sandbox", message=str(error), detail=error.hint)
    return games.undecided(trajectory, fault, stage=stage, why=f"the sandbox failed: {error}")


def judged(
    attempt: Trajectory,
    passed: bool | None,
    reason: str,
    why: str,
    evidence: Mapping[str, Any],
    *,
    worth: SolverReward,
    valid: bool = True,
) -> Verdict:
    """An attempt that was decided, or, where `passed` is None, is suspicious."""
    return Verdict(
        trajectory_id=attempt.id,
        stage="judge",
        valid=valid,
        passed=passed,
        reward=None if passed is None else worth(passed),
        reason=reason,
        why=why,
        evidence=evidence,
    )


def decided(
    attempt: Trajectory,
    found: Decision,
    *,
    failing: Collection[str],
    path: str,
    evidence: Mapping[str, Any],
    worth: SolverReward,
) -> Verdict:
    """An attempt on a task whose tests `failing` failed; `path` is the file that is blamed where nothing imports."""
    evidence = {**evidence, "run": found.run.key}
    evidence |= {"dropped": dict(found.dropped)} if found.dropped else {}
    evidence |= {"flags": list(found.flags)} if found.flags else {}
    evidence |= {"differential": asdict(found.compared)} if found.compared else {}
    if found.kind == "unfinished":
        problem = bugs.unfinished(found.run, path=path)
        return judged(attempt, False, problem.reason, problem.why, evidence, worth=worth)
    if found.kind == "failed":
        evidence["failing"] = [[test, said] for test, said in found.failed.items()]
        still = "still fails" if set(found.failed) & set(failing) else "fails now, and passed before"
        return judged(attempt, False, Reason.TESTS_FAIL, f"{some(found.failed)} {still}", evidence, worth=worth)
    if found.kind == "passed":
        why = f"all {len(found.run.passed)} tests pass, {len(failing)} of them failed before"
        return judged(attempt, True, Reason.PASSED, why, evidence, worth=worth)
    reason = Reason.FORGED if found.kind == "forged" else Reason.SUSPICIOUS
    return judged(attempt, found.passed, reason, found.why, evidence, worth=worth, valid=found.passed is None)


def graded(
    proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, worth: ProposerReward, beside: Beside
) -> Verdict:
    """What the proposal is worth. A control tries the judges, so nobody is paid for it and nobody pays."""
    return grading.graded(
        proposal,
        minted,
        judged,
        worth=worth,
        beside=beside,
        unreadable=bugs.UNREADABLE,
        unpaid=bugs.CONTROLS,
        did="repaired it",
    )


def some(failing: Mapping[str, str]) -> str:
    """The first failing test with its message, and how many more there are."""
    test, said = next(iter(failing.items()))
    more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    return f"{bugs.short(test)} ({said}){more}"
