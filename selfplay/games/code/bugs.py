"""Is a reply a bug? The checks that a proposal goes through, in order, each with its reason.

What is covered: the reply's form, that only the function changes, that it compiles, that everything still imports and
is collected, and that tests which pass on the clean tree fail, twice. `CHECKS` is that list: a stricter game puts its
checks (canaries, a differential check, strength) into it.

What is not covered: whether a bug is hard, which only attempts show, and whether it is new, which the ledger knows.

Example:
    >>> found = await examine("2|    return a - b", target=target, verifier=verifier)  # doctest: +SKIP
    >>> found.failing  # doctest: +SKIP
    {'tests/test_a.py::test_add': 'assert -1 == 3'}
"""

from __future__ import annotations

import ast
import difflib
import functools
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum

from selfplay.games.code import edits
from selfplay.games.code.survey import Function, functions_of
from selfplay.games.code.verify import Budget, Change, Ended, Run, Verifier
from selfplay.types import digest, record


class Reason(StrEnum):
    """Why a proposal or an attempt was decided as it was, beside `edit_` and the reasons of `edits.Reason`."""

    VALID = "valid"
    PASSED = "passed"
    TRUNCATED = "truncated"
    """The reply reached its limit before it ended."""
    OUTSIDE = "changes_outside"
    """More than the function would change in its file."""
    DOES_NOT_COMPILE = "does_not_compile"
    IMPORT_ERROR = "import_error"
    """The changed file can no longer be imported."""
    COLLECTION_ERROR = "collection_error"
    """A test module can no longer be collected."""
    TIMEOUT = "timeout"
    CPU_LIMIT = "cpu_limit"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TESTS_STILL_PASS = "tests_still_pass"
    FLAKY = "flaky"
    """No test failed in both runs."""
    TESTS_FAIL = "tests_fail"
    """An attempt left a test failing."""
    FAULT = "fault"
    """The machine failed; nothing was decided."""


@record
class Target:
    """The function that is played with, and what may be spent on it."""

    function: Function
    text: str
    """The whole clean file."""
    budget: Budget


@record
class Problem:
    """Why it goes no further."""

    reason: str
    why: str
    edit: edits.Edit | None = None
    failing: Mapping[str, str] = field(default_factory=dict)


@record
class Bug:
    """What is known of a reply so far; each check adds to it."""

    target: Target
    reply: str
    edit: edits.Edit | None = None
    source: str = ""
    """The function with the bug."""
    change: Change | None = None
    first: Run | None = None
    tests: tuple[str, ...] = ()
    """Tests that decide an attempt: they reach the function, pass on the clean tree, and did the same twice."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Those of them that the bug makes fail -> message."""


Check = Callable[[Bug, Verifier], Awaitable[Bug | Problem]]


async def examine(reply: str, *, target: Target, verifier: Verifier) -> Bug | Problem:
    """The bug that `reply` describes, proved by failing tests; else the first problem.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    bug = Bug(target=target, reply=reply)
    for check in CHECKS:
        found = await check(bug, verifier)
        if isinstance(found, Problem):
            return replace(found, edit=bug.edit)
        bug = found
    return bug


async def is_an_edit(bug: Bug, verifier: Verifier) -> Bug | Problem:
    """The reply has the form, and applies to the function."""
    source = bug.target.function.source
    edit = edits.parse(bug.reply, source=source)
    if isinstance(edit, edits.Refusal):
        return Problem(reason=f"edit_{edit.reason}", why=edit.why)
    buggy = edits.apply(source, edit)
    return replace(bug, edit=edit, source=buggy, change=changed(bug.target, buggy))


async def compiles(bug: Bug, verifier: Verifier) -> Bug | Problem:
    """The changed file compiles, and differs from the clean one in the function only."""
    assert bug.change is not None
    return why_not_loadable(bug.target, bug.change) or bug


async def breaks_tests(bug: Bug, verifier: Verifier) -> Bug | Problem:
    """Everything imports, is collected and ends in time, and a test that reaches the function fails."""
    run = await verifier.run(bug.target.function.tests, budget=bug.target.budget, change=bug.change)
    if run.ended is not Ended.COMPLETED:
        return unfinished(run, path=bug.target.function.path)
    if not run.failed:
        why = f"all {len(run.passed)} tests that reach `{bug.target.function.qualname}` still pass"
        return Problem(reason=Reason.TESTS_STILL_PASS, why=why)
    return replace(bug, first=run)


async def tests_pass_without_it(bug: Bug, verifier: Verifier) -> Bug | Problem:
    """Run alone on the clean tree, the tests pass; those that do not are not held against anybody."""
    assert bug.first is not None
    clean = await verifier.run(bug.target.function.tests, budget=bug.target.budget.times(2))
    failing = {test: said for test, said in bug.first.failed.items() if test in clean.passed}
    if not failing:
        return Problem(reason=Reason.FLAKY, why="the tests that fail also fail on the clean tree when run alone")
    return replace(bug, tests=clean.passed, failing=failing)


async def breaks_them_again(bug: Bug, verifier: Verifier) -> Bug | Problem:
    """A second run, in another sandbox, fails in the same tests; tests that did not do the same twice are dropped."""
    assert bug.first is not None
    again = await verifier.run(bug.target.function.tests, budget=bug.target.budget, change=bug.change, again=1)
    if again.ended is not Ended.COMPLETED:
        return unfinished(again, path=bug.target.function.path)
    failing = {test: said for test, said in bug.failing.items() if test in again.failed}
    if not failing:
        return Problem(reason=Reason.FLAKY, why="no test fails in both of two runs", failing=bug.failing)
    same = set(bug.first.failed).symmetric_difference(again.failed)
    return replace(bug, failing=failing, tests=tuple(test for test in bug.tests if test not in same))


CHECKS: tuple[Check, ...] = (is_an_edit, compiles, breaks_tests, tests_pass_without_it, breaks_them_again)
"""What makes a proposal a bug, in order; the first that finds a problem ends it."""


def changed(target: Target, source: str) -> Change:
    """The file with `source` in place of the clean function."""
    function = target.function
    lines = target.text.split("\n")
    first, last = function.line - 1, function.line - 1 + function.source.count("\n")
    assert "\n".join(lines[first:last]) + "\n" == function.source
    text = "\n".join([*lines[:first], *source.removesuffix("\n").split("\n"), *lines[last:]])
    return Change(path=function.path, text=text)


def why_not_loadable(target: Target, change: Change) -> Problem | None:
    """Why the changed file is not a program that differs in the function only; None where it is."""
    name = target.function.qualname
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(change.text, change.path, "exec", dont_inherit=True)
            same = _around(change.text, name) == _around(target.text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Problem(reason=Reason.DOES_NOT_COMPILE, why=f"the changed file does not compile: {error}"[:200])
    if not same:
        return Problem(reason=Reason.OUTSIDE, why=f"the edit changes more than `{name}`")
    return None


def unfinished(run: Run, *, path: str) -> Problem:
    """The problem of a run that did not complete."""
    reason = {
        Ended.TIMEOUT: Reason.TIMEOUT,
        Ended.CPU: Reason.CPU_LIMIT,
        Ended.MEMORY: Reason.OUT_OF_MEMORY,
        Ended.CRASHED: Reason.CRASHED,
        Ended.COLLECTION: Reason.IMPORT_ERROR if path in run.blamed else Reason.COLLECTION_ERROR,
    }[run.ended]
    return Problem(reason=reason, why=run.detail)


def key_of(bug: Bug) -> str:
    """What two copies of one bug share: the place, and the program with layout and comments taken away."""
    tree = edits.definition(bug.source)
    assert tree is not None
    return f"{bug.target.function.name}:{digest(ast.dump(tree))}"


def diff(old: str, new: str, *, path: str) -> str:
    """Unified diff of one function."""
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}", n=2)
    return "".join(lines)


def shown(failing: Mapping[str, str], *, limit: int) -> str:
    """Names and messages of the first `limit` failing tests, as a repairer sees them: one a line."""
    lines = [f"{short(test)}: {said}" for test, said in list(failing.items())[:limit]]
    return "\n".join(lines)


def short(test: str) -> str:
    """A test's name without its file: `TestA::test_b[1]`."""
    name = test.partition("::")[2] or test
    return name if len(name) <= 60 else name[:57] + "..."


@functools.lru_cache(maxsize=512)
def _around(text: str, qualname: str) -> str:
    """Digest of the file's program with the body of one function taken out."""
    tree = ast.parse(text)
    *outer, name = qualname.split(".")
    body = tree.body
    for part in outer:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == part)
    for node in body:
        if isinstance(node, edits.Definition) and node.name == name:
            node.body = []
    return digest(ast.dump(tree))


def target_of(function: Function, *, text: str, budget: Budget) -> Target:
    """The target, checked against the file's text.

    Raises:
        ValueError: the file does not hold that function at that line.
    """
    known = {found.qualname: found for found in functions_of(text, path=function.path)}
    found = known.get(function.qualname)
    if found is None or (found.line, found.source) != (function.line, function.source):
        raise ValueError(f"{function.name} is not what the tree holds")
    return Target(function=function, text=text, budget=budget)
