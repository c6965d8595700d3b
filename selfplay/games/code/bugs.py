"""What a bug is: the records of a proposal on its way, the reasons that end it, and the one function it changes.

What is covered: `Reason`, the function that is played with, the file with another text in its place, whether that still
is a program which differs in the function only, names and words for people. The checks themselves are `checks`.

What is not covered: whether a bug is hard, which only attempts show, and whether it is new, which the ledger knows.

Example:
    >>> short("tests/test_a.py::TestA::test_b[1]")
    'TestA::test_b[1]'
"""

from __future__ import annotations

import ast
import difflib
import functools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from selfplay.games import duplicates
from selfplay.games.code import edits
from selfplay.games.code.survey import Function, functions_of
from selfplay.games.code.verify import Budget, Change, Ended, Run
from selfplay.types import digest, record

if TYPE_CHECKING:
    from selfplay.games.code.artifact import Artifact


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
    ARTIFACT = "artifact_incomplete"
    """A file of it is missing, unreadable, or there under two names that differ."""
    TEST_FILES = "test_files_missing"
    """SSR's check 1: a listed file is no test file of the repository."""
    WEAKENS_OTHERS = "weakening_outside"
    """Check 1 too: the weakening changes a file that is not listed."""
    NO_RESULTS = "no_results"
    """Check 2: a listed test file gave no result on the clean tree."""
    TOO_FEW_PASSING = "too_few_passing"
    """Check 3: `game.min_passing_tests`, counted over the surveyed stable suite."""
    TOO_FEW_FILES = "too_few_files"
    """Check 4: `game.min_changed_files`."""
    TESTS_STILL_PASS = "tests_still_pass"
    """Check 5: no test fails."""
    TOO_FEW_FAILING = "too_few_failing"
    """Check 5: `game.min_failing_tests`."""
    FLAKY = "flaky"
    """No test passed in all clean runs and failed in both runs with the bug."""
    BREAKS_TOO_MANY = "breaks_too_many"
    """More than `game.max_broken_share` of the suite."""
    HIDES_NOTHING = "weakening_hides_nothing"
    """Check 6: every failing test still fails after the weakening."""
    DEAD_FILE = "dead_file"
    """Check 7: with one changed file put back, no failing test passes."""
    CONTROL_GOLD = "control_gold"
    """Quarantined: the verdict protocol does not accept the clean code."""
    CONTROL_DELETED = "control_deleted_tests"
    """Quarantined: it accepts the bug where the test files are deleted."""
    CONTROL_CONFTEST = "control_conftest"
    """Quarantined: it accepts the bug where a conftest calls every test passed."""
    SAME_AS_ORIGINAL = "same_as_original"
    """A failed attempt left the clean function: no child."""
    SAME_AS_PARENT = "same_as_parent"
    """A failed attempt left the bug that it was to repair: no child."""
    TOO_FAR = "too_far"
    """A failed attempt left more lines changed than one repair may edit: no child."""
    TESTS_FAIL = "tests_fail"
    """An attempt left a test failing."""
    FORGED = "forged"
    """An attempt's report cannot be true: a failed attempt."""
    SUSPICIOUS = "suspicious"
    """An attempt passes by code that could deceive the canaries: nothing is decided."""
    FAULT = "fault"
    """The machine failed; nothing was decided."""


UNREADABLE = frozenset(
    {Reason.TRUNCATED, *(f"edit_{reason}" for reason in edits.UNREAD)},
)
"""Reasons of a proposal in which no edit could be read at all."""
CONTROLS = frozenset({Reason.CONTROL_GOLD, Reason.CONTROL_DELETED, Reason.CONTROL_CONFTEST})
"""Reasons for which a proposal is quarantined."""


CUT = "the reply reached its limit before it ended"
"""Why a truncated reply is nothing."""


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
    """An edit of one function, proved."""

    target: Target
    edit: edits.Edit
    source: str
    """The function with the bug, without the parts of the edit that did nothing."""
    first: Run
    """The first run with it."""
    tests: tuple[str, ...]
    """Tests that decide an attempt: they reach the function, pass in every clean run, did the same twice with it."""
    failing: Mapping[str, str]
    """Those of them that the bug makes fail -> message."""
    code: Mapping[str, bytes | None]
    """The changed files."""
    artifact: Artifact
    """The same bug as files, with the engine's weakening."""
    dropped: tuple[str, ...] = ()
    """Hunks of the edit that did nothing, as diffs."""


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


def key_of(function: Function, buggy: str, failing: Iterable[str]) -> str:
    """What copies of one bug share: the function, the places in it, the failing tests, and what the change does there.

    Layout, comments and the names of local variables do not count: functions are compared as `duplicates.plain` has
    them, and a place is a line of that. So the same change on another line that reads alike is another bug.
    """
    old, new = (_plain(source).splitlines() for source in (function.source, buggy))
    change = list(difflib.unified_diff(old, new, n=0, lineterm=""))
    places = [f"{function.name} {line}" for line in change if line.startswith("@@")]
    return f"{function.name}:{duplicates.code_key(places, failing, chr(10).join(change))}"


def _plain(source: str) -> str:
    tree = edits.definition(source)
    assert tree is not None
    return duplicates.plain(tree)


def whereabouts(clean: str, buggy: str) -> str:
    """The lines of the broken function that are not the clean one's, without what they were: `look at line 6`."""
    matcher = difflib.SequenceMatcher(None, clean.split("\n"), buggy.split("\n"), autojunk=False)
    spans = [(first, last) for kind, _, _, first, last in matcher.get_opcodes() if kind != "equal"]
    # note: where lines are only missing, the one that stands behind them is named.
    lines = [str(line + 1) for first, last in spans for line in range(first, max(last, first + 1))]
    return f"look at line {lines[0]}" if len(lines) == 1 else f"look at lines {', '.join(lines)}"


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
