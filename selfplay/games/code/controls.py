"""Controls of a task, before it counts: the verdict protocol accepts the clean code and none of three empty repairs.

What is covered: gold (the clean tree) must be accepted, the bug with its test files deleted and the bug beside a
conftest that calls every test passed must not be. The third empty repair, the bug as it is, was run twice by `checks`,
and tests failed. A task that fails a control is quarantined: nothing is played with it and nobody is paid.

What it costs: one session a task. Both empty repairs lose their files to the filter, so that what is left of them is
one tree; and the clean tree's session is the one that `verdict.prepare` proved the canaries in, wherever all were
proved.

What is not covered: attacks on the protocol itself, which its own corpus holds.

Example:
    >>> problem = await why_quarantined(verifier, payload, code={"m.py": b"..."}, budget=budget)  # doctest: +SKIP
    >>> problem is None  # doctest: +SKIP
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from selfplay.games.code import verdict
from selfplay.games.code.artifact import Files, contents
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.source import Repository
from selfplay.games.code.verify import Budget, Verifier

ALL_PASS = """

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None
"""
"""A conftest, or the end of one, with which pytest reports no failure."""


async def why_quarantined(
    verifier: Verifier, payload: Mapping[str, Any], *, code: Files, budget: Budget
) -> Problem | None:
    """The first control that fails; `payload` is the task's, with its canaries, and `code` are the files of the bug.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    gold = await verdict.decide(verifier, payload, files={}, budget=budget)
    if gold.passed is not True:
        said = gold.why or next((f"{test}: {said}" for test, said in gold.failed.items()), gold.kind)
        return Problem(reason=Reason.CONTROL_GOLD, why=f"the clean code is not accepted: {said}"[:300])
    for reason, what, files in _empty_repairs(verifier.repository, payload):
        found = await verdict.decide(verifier, payload, files={**files, **code}, budget=budget)
        if found.passed:
            return Problem(reason=reason, why=f"the bug is accepted {what}")
    return None


def _empty_repairs(
    repository: Repository, payload: Mapping[str, Any]
) -> Iterator[tuple[Reason, str, dict[str, bytes | None]]]:
    """Changes that mend nothing, each with its reason code and in words."""
    tests = sorted({str(test).partition("::")[0] for test in payload["tests"]})
    yield Reason.CONTROL_DELETED, "where its test files are deleted", dict.fromkeys(tests)
    places = {"conftest.py", *(str(PurePosixPath(path).with_name("conftest.py")) for path in tests)}
    own = contents(repository, sorted(places))
    yield (
        Reason.CONTROL_CONFTEST,
        "where a conftest calls every test passed",
        {path: (text or b"") + ALL_PASS.encode() for path, text in own.items()},
    )
