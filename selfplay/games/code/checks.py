"""Is it a bug? The checks that a proposal goes through, in order, each with its reason.

What is covered: the seven checks of Self-play SWE-RL (arXiv 2512.18552; research note `selfplay-papers.md` §A.3) in its
order, with thresholds that are settings, and what it lacks: parts of a change that do nothing are dropped, only tests
that did the same in three clean runs and two with the bug count, and a bug breaks a part of the suite, not all of it.
`CHECKS` is that list; a stricter game puts its own into it. `examine` takes the single-turn form, one edit of one
function, whose weakening the engine makes; `prove` takes any artifact, first or second order.

Where nothing is stated in the paper: a failing test is hidden where it passes, is skipped or is gone; the number of
passing tests is that of the surveyed stable suite (`survey`), so it costs no run. The engine's own weakening is proved
on the syntax tree, one that was brought is run.

What is not covered: controls (`controls`), strength, a differential check.

Example:
    >>> found = await examine("2|    return a - b", target=target, grounds=grounds)  # doctest: +SKIP
    >>> found.failing  # doctest: +SKIP
    {'tests/test_a.py::test_add': 'assert -1 == 3'}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace

from selfplay.games.code import bugs, edits, trials
from selfplay.games.code.artifact import Artifact, Files, applied, contents, diff_of
from selfplay.games.code.bugs import Bug, Problem, Reason, Target
from selfplay.games.code.hunks import hunks_of, parses, with_only
from selfplay.games.code.source import is_test
from selfplay.games.code.verify import Budget, Change, Ended, Run, Verifier
from selfplay.games.code.weaken import weakened
from selfplay.types import record

ALWAYS = 20
"""So many tests a bug may break, however small the suite (research note `sandboxes.md` §7.2)."""
MAX_HUNKS = 12
"""Parts of a change that are looked at; the rest is kept."""
_HIDDEN = ("it did not run", "skipped", "xfailed")
_UNBOUND = ("NameError", "UnboundLocalError")


@record
class Thresholds:
    """What a bug has to reach."""

    min_passing_tests: int = 0
    """More than this many tests of the suite are stable on the clean tree."""
    min_changed_files: int = 1
    min_failing_tests: int = 1
    max_broken_share: float = 0.5
    """Largest share of the suite's stable tests that may fail, beside `ALWAYS`."""


@record
class Grounds:
    """What a repository's bugs are proved on."""

    verifier: Verifier
    stable: tuple[str, ...]
    """Every test that passed in both runs of the survey."""
    left_out: Mapping[str, str]
    """Tests and files that did not -> why."""
    thresholds: Thresholds = Thresholds()


@record
class Case:
    """What is known of a bug so far; each check adds to it."""

    test_files: tuple[str, ...]
    code: Files
    """The code files with the bug."""
    asked: tuple[str, ...]
    """Tests that are run for it."""
    what: str
    """Those tests in words: `tests that reach f`."""
    budget: Budget
    tests: tuple[str, ...] = ()
    """Those of them that decide an attempt: they pass in every clean run, and did the same twice with the bug."""
    weak: Files | None = None
    """The test files weakened; None: the engine is to do it."""
    first: Run | None = None
    failing: Mapping[str, str] = field(default_factory=dict)
    """Stable tests that fail with the bug -> message."""
    dropped: tuple[str, ...] = ()
    """Parts that did nothing, as diffs."""


Check = Callable[[Case, Grounds], Awaitable[Case | Problem]]


async def examine(reply: str, *, target: Target, grounds: Grounds) -> Bug | Problem:
    """The bug that `reply` describes, proved by failing tests; else the first problem.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    source = target.function.source
    edit = edits.parse(reply, source=source)
    if isinstance(edit, edits.Refusal):
        return Problem(reason=f"edit_{edit.reason}", why=edit.why)
    return await examine_edited(edits.apply(source, edit), edit=edit, target=target, grounds=grounds)


async def examine_edited(source: str, *, edit: edits.Edit, target: Target, grounds: Grounds) -> Bug | Problem:
    """The same of a function that is `source` by now; `edit` is the last one that was made to it."""
    function, change = target.function, bugs.changed(target, source)
    problem = bugs.why_not_loadable(target, change)
    if problem is not None:
        return replace(problem, edit=edit)
    case = Case(
        test_files=tuple(dict.fromkeys(test.partition("::")[0] for test in function.tests)),
        code={function.path: change.text.encode()},
        asked=function.tests,
        what=f"tests that reach `{function.qualname}`",
        budget=target.budget,
    )
    found = await _checked(case, grounds)
    if isinstance(found, Problem):
        return replace(found, edit=edit)
    assert found.first is not None
    return Bug(
        target=target,
        edit=edit,
        source=_source(target, found),
        first=found.first,
        tests=found.tests,
        failing=found.failing,
        code=found.code,
        artifact=_artifact(found, grounds),
        dropped=found.dropped,
    )


async def prove(
    artifact: Artifact, *, grounds: Grounds, budget: Callable[[tuple[str, ...]], Budget]
) -> tuple[Artifact, Case] | Problem:
    """The bug of an artifact, without its parts that do nothing, and what is known of it; else the first problem.

    `budget` is what the tests of one candidate may use.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    files = applied(artifact, repository=grounds.verifier.repository)
    if isinstance(files, Problem):
        return files
    listed = frozenset(artifact.test_files)
    tests = tuple(test for test in grounds.stable if test.partition("::")[0] in listed)
    case = Case(
        test_files=artifact.test_files,
        code=files.code,
        asked=tests,
        what="tests of the listed files",
        budget=budget(tests),
        weak=files.tests,
    )
    found = await _checked(case, grounds)
    if isinstance(found, Problem):
        return found
    return replace(_artifact(found, grounds), order=artifact.order, unused=artifact.unused), found


async def _checked(case: Case, grounds: Grounds) -> Case | Problem:
    for check in CHECKS:
        found = await check(case, grounds)
        if isinstance(found, Problem):
            return found
        case = found
    return case


async def files_cover(case: Case, grounds: Grounds) -> Case | Problem:
    """1. The listed test files are the repository's, and the weakening changes no other file."""
    known = frozenset(grounds.verifier.repository.files)
    for path in case.test_files:
        # note: what a weakening may change has to be a test by its place; what the engine weakens, pytest found.
        if path not in known or not (case.weak is None or is_test(path)):
            what = "not a test file" if path in known else "not in the repository"
            return Problem(reason=Reason.TEST_FILES, why=f"{path[:100]} is {what}")
    if not case.test_files:
        return Problem(reason=Reason.TEST_FILES, why="no test file is listed")
    for path in case.weak or ():
        if path not in case.test_files:
            return Problem(reason=Reason.WEAKENS_OTHERS, why=f"the weakening changes {path}, which is not listed")
    return case


async def results_parse(case: Case, grounds: Grounds) -> Case | Problem:
    """2. Each of them gave results on the clean tree; the parser is ours (`artifact`), so this is about the files."""
    with_results = {test.partition("::")[0] for test in grounds.stable}
    for path in case.test_files:
        if path not in with_results:
            said = next((why for test, why in grounds.left_out.items() if test.partition("::")[0] == path), "")
            why = f"no test of {path} passes on the clean tree" + (f" ({said})" if said else "")
            return Problem(reason=Reason.NO_RESULTS, why=why)
    return case


async def enough_pass(case: Case, grounds: Grounds) -> Case | Problem:
    """3. More than `min_passing_tests` tests of the suite pass on the clean tree."""
    least = grounds.thresholds.min_passing_tests
    if len(grounds.stable) <= least:
        why = f"{len(grounds.stable)} tests pass on the clean tree, and more than {least} must"
        return Problem(reason=Reason.TOO_FEW_PASSING, why=why)
    return case


async def enough_files(case: Case, grounds: Grounds) -> Case | Problem:
    """4. At least `min_changed_files` code files are changed."""
    least = grounds.thresholds.min_changed_files
    if len(case.code) < least:
        return Problem(reason=Reason.TOO_FEW_FILES, why=f"{len(case.code)} code files change, and {least} must")
    return case


async def breaks_tests(case: Case, grounds: Grounds) -> Case | Problem:
    """5. Everything imports, is collected and ends in time, and tests fail that are stable on the clean tree."""
    run = await _run(case.asked, case, grounds, files=case.code)
    if run.ended is not Ended.COMPLETED:
        return _unfinished(run, case)
    if not run.failed:
        return Problem(reason=Reason.TESTS_STILL_PASS, why=f"all {len(run.passed)} {case.what} still pass")
    # note: before the clean runs, which cost more and could only leave fewer.
    few = _too_few(run.failed, grounds)
    if few is not None:
        return few
    tests = await trials.stable(grounds.verifier, case.asked, budget=case.budget.times(2))
    failing = {test: said for test, said in run.failed.items() if test in tests}
    if not failing:
        why = f"the tests that fail do not pass in each of {trials.CLEAN_RUNS} runs of the clean tree"
        return Problem(reason=Reason.FLAKY, why=why)
    return _too_few(failing, grounds) or replace(case, first=run, tests=tests, failing=failing)


async def drop_dead_hunks(case: Case, grounds: Grounds) -> Case | Problem:
    """Parts go, one after another, without which every test that fails still fails: inverse mutation per hunk.

    One without which names are unbound stays, however many tests fail: the rest of the change rests on it.
    """
    assert case.first is not None
    clean = contents(grounds.verifier.repository, case.code)
    kept = hunks_of(clean, case.code)
    for hunk in kept[:MAX_HUNKS] if len(kept) > 1 else ():
        rest = tuple(one for one in kept if one is not hunk)
        files = with_only(rest, clean=clean)
        if not rest or not parses(files):
            continue
        run = await _run(case.asked, case, grounds, files=files)
        dead = run.ended is Ended.COMPLETED and not any(test in run.passed for test in case.failing)
        if dead and not _unbound(run) - _unbound(case.first):
            kept = rest
            failing = {test: said for test, said in run.failed.items() if test in case.tests}
            said = diff_of(clean, with_only((hunk,), clean=clean))
            case = replace(case, code=files, first=run, failing=failing, dropped=(*case.dropped, said))
    return case


async def breaks_them_again(case: Case, grounds: Grounds) -> Case | Problem:
    """Another sandbox and another hash seed: the same tests fail; those that did not do the same twice are dropped."""
    assert case.first is not None
    # note: a seed that nothing in the tree could have been chosen for.
    seed = trials.other_hash_seed(diff_of({}, case.code), *case.asked)
    again = await _run(case.asked, case, grounds, files=case.code, again=1, hash_seed=seed)
    if again.ended is not Ended.COMPLETED:
        return _unfinished(again, case)
    failing = {test: said for test, said in case.failing.items() if test in again.failed}
    if not failing:
        return Problem(reason=Reason.FLAKY, why="no test fails in both of two runs", failing=case.failing)
    same = set(case.first.failed).symmetric_difference(again.failed)
    tests = tuple(test for test in case.tests if test not in same)
    return _too_few(failing, grounds) or replace(case, failing=failing, tests=tests)


async def within_share(case: Case, grounds: Grounds) -> Case | Problem:
    """At most `max_broken_share` of the suite's stable tests fail; only those that were run can."""
    most = max(ALWAYS, grounds.thresholds.max_broken_share * len(grounds.stable))
    if len(case.failing) > most:
        why = f"{len(case.failing)} of the suite's {len(grounds.stable)} tests fail, and at most {int(most)} may"
        return Problem(reason=Reason.BREAKS_TOO_MANY, why=why)
    return case


async def weakening_hides(case: Case, grounds: Grounds) -> Case | Problem:
    """6. After the weakening, a test that failed no longer does: it passes, is skipped or is gone."""
    if case.weak is None:
        weak = _weakening(case, grounds)
        return replace(case, weak=weak) if weak else Problem(reason=Reason.HIDES_NOTHING, why=_NOT_HIDDEN)
    files = {**case.code, **case.weak}
    run = await _run(tuple(case.failing), case, grounds, files=files)
    hidden = [test for test in case.failing if test in run.passed or run.failed.get(test) in _HIDDEN]
    if run.ended is not Ended.COMPLETED or not hidden:
        said = f" ({run.detail})" if run.detail else ""
        return Problem(reason=Reason.HIDES_NOTHING, why=f"every failing test still fails after the weakening{said}")
    return case


async def every_file_matters(case: Case, grounds: Grounds) -> Case | Problem:
    """7. Inverse mutation: with any one file put back, a failing test passes.

    With one file there is nothing to run: put back, it is the clean tree, where they passed three times.
    """
    for path in case.code if len(case.code) > 1 else ():
        files = {other: content for other, content in case.code.items() if other != path}
        run = await _run(case.asked, case, grounds, files=files)
        if run.ended is not Ended.COMPLETED or not any(test in run.passed for test in case.failing):
            return Problem(reason=Reason.DEAD_FILE, why=f"with {path} put back, every failing test still fails")
    return case


CHECKS: tuple[Check, ...] = (
    files_cover,
    results_parse,
    enough_pass,
    enough_files,
    breaks_tests,
    drop_dead_hunks,
    breaks_them_again,
    within_share,
    weakening_hides,
    every_file_matters,
)
"""What makes a proposal a bug, in order; the first that finds a problem ends it."""

_NOT_HIDDEN = "none of the failing tests can be taken out of its file"


async def _run(
    tests: tuple[str, ...], case: Case, grounds: Grounds, *, files: Files, again: int = 0, hash_seed: int = 0
) -> Run:
    """A run of the clean tree with `files`; one changed file has the same key as everywhere else."""
    change: Change | Files = files
    if len(files) == 1:
        [(path, content)] = files.items()
        change = files if content is None else Change(path=path, text=content.decode())
    return await grounds.verifier.run(tests, budget=case.budget, change=change, again=again, hash_seed=hash_seed)


def _artifact(case: Case, grounds: Grounds) -> Artifact:
    """The bug as it was proved."""
    repository = grounds.verifier.repository
    weak = case.weak or {}
    return Artifact(
        test_files=case.test_files,
        bug=diff_of(contents(repository, case.code), case.code),
        weakening=diff_of(contents(repository, weak), weak),
    )


def _source(target: Target, case: Case) -> str:
    """The function in the changed file."""
    content = case.code[target.function.path]
    assert content is not None
    before, lines = target.text.split("\n"), content.decode().split("\n")
    first = target.function.line - 1
    behind = len(before) - first - target.function.source.count("\n")
    return "\n".join(lines[first : len(lines) - behind]) + "\n"


def _weakening(case: Case, grounds: Grounds) -> Files:
    """The test files without the failing tests; empty where none could be taken out."""
    names: dict[str, list[str]] = {}
    for test in case.failing:
        path, _, name = test.partition("::")
        names.setdefault(path, []).append(name)
    weak: dict[str, bytes | None] = {}
    for path, chosen in names.items():
        try:
            found = weakened(grounds.verifier.repository.read(path), chosen)
        except UnicodeDecodeError:
            continue
        if found.hidden:
            weak[path] = found.text.encode()
    return weak


def _too_few(failing: Mapping[str, str], grounds: Grounds) -> Problem | None:
    least = grounds.thresholds.min_failing_tests
    if len(failing) >= least:
        return None
    why = f"{len(failing)} tests fail that pass on the clean tree, and {least} must"
    return Problem(reason=Reason.TOO_FEW_FAILING, why=why, failing=failing)


def _unfinished(run: Run, case: Case) -> Problem:
    path = next((path for path in case.code if path in run.blamed), next(iter(case.code)))
    return bugs.unfinished(run, path=path)


def _unbound(run: Run) -> set[str]:
    """Tests that fail for a name that is not bound."""
    return {test for test, said in run.failed.items() if any(word in said for word in _UNBOUND)}
