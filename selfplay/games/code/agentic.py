"""Bugs that are played with a shell: an artifact of files is examined, its tree handed out, a repair of it judged.

The agentic form of the game (Self-play SWE-RL, arXiv 2512.18552; research note `selfplay-papers.md` §A.2 to §A.6): an
injector hands over the five files of an artifact, a repairer the difference of its work tree; both touch many files.

What is covered:

- `examine_artifact`: the files under either of the paper's sets of names, both diffs applied strictly, every check of
  `checks.CHECKS`. The bug's diff is over code files only: one that touches a test, a setting or what starts by itself
  is refused whole, since what is played has to be what was handed over. Script and parser are not used (`artifact`).
- `task_payload`: the task with its canaries, proved, every control passed, and a tree that gives nothing away; the
  same `verdict` as in the other form.
- `judge_patch`: the repairer's diff on the tree that it was given, of which files that no candidate may change are left
  out; then the listed test files as they were before the weakening, in a clean sandbox, with `verdict.decide`.
- `examine_child`: what a failed repair left, as a bug of the second order.
- `handed_to_solver`, `handed_to_proposer`: one commit without history, of the weakened bug and of the clean tree, each
  with the plain tar that the difference is taken from.

A bug in one plain function has its place in the payload, so that an accepted repair is also compared with the original
on other inputs (`differential`); with more than one, hidden tests would be needed.

What is not covered: what a bug breaks in test files that it does not list; prompts, rewards and tasks (`tree_game`).

Example:
    >>> bug = await examine_artifact(product["files"], opened=opened)  # doctest: +SKIP
    >>> payload = await task_payload(bug, opened=opened, key="task", cache=cache)  # doctest: +SKIP
    >>> (await judge_patch(product["patch"], payload, opened=opened)).passed  # doctest: +SKIP
    True
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfplay.games import duplicates
from selfplay.games.code import artifact, checks, controls, patches, verdict
from selfplay.games.code.artifact import NAMES, Applied, Artifact, Files, contents, diff_of
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.handed import GivesAway, Handed, handed
from selfplay.games.code.opened import Opened
from selfplay.games.code.protected import why_dropped
from selfplay.games.code.source import Repository
from selfplay.games.code.survey import functions_of
from selfplay.games.code.verdict import Decision
from selfplay.tools.workbench import Changes
from selfplay.tools.workbench import Files as FilesOf
from selfplay.types import record

FORBIDDEN = "bug_outside_code"
"""The bug's diff touches a file that no candidate may change."""
GIVES_AWAY = "gives_away"
"""The tree that a solver would get holds the clean text of a changed file."""


@record
class TreeBug:
    """A bug in one or more files, proved."""

    artifact: Artifact
    """Without the parts that did nothing."""
    code: Files
    """The changed code files."""
    weak: Files
    """The weakened test files."""
    tests: tuple[str, ...]
    """Tests of the listed files that decide an attempt: they pass in every clean run, did the same twice with it."""
    failing: Mapping[str, str]
    """Those of them that the bug makes fail -> message."""
    specification: str
    """The weakening reversed: what a solver is told."""
    touched: tuple[str, ...]
    """What it changes: `path::function`, or the path for all else."""
    dropped: tuple[str, ...] = ()
    """Parts of the bug that did nothing, as diffs."""

    @property
    def key(self) -> str:
        """What copies of it share, whatever their layout (`duplicates`)."""
        return duplicates.code_key(self.touched, self.failing, self.artifact.bug)


def artifact_handover() -> FilesOf:
    """How `submit` reads an artifact out of a sandbox: `{"files": {name: text}}`, what `examine_artifact` takes."""
    optional = [name for use in ("script", "parser") for name in NAMES[use]]
    needed = tuple(NAMES[use] for use in ("test_files", "bug", "weakening"))
    return FilesOf(needed=needed, others=tuple(optional), max_bytes=artifact.MAX_BYTES)


def patch_handover(tree: Handed) -> Changes:
    """How `submit` reads a repair out of a sandbox that holds `tree`: `{"patch": ...}`, what `judge_patch` takes."""
    return Changes(base=str(tree.base), why_dropped=why_dropped)


async def examine_artifact(files: Mapping[str, str | bytes], *, opened: Opened) -> TreeBug | Problem:
    """The bug of an artifact's files (name -> content), proved by failing tests; else the first problem.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    # note: text that is none, such as half of a surrogate pair, is found to be none by the reader.
    raw = {
        name: body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body for name, body in files.items()
    }
    found = artifact.of_files(raw)
    if isinstance(found, Problem):
        return found
    return _why_outside(found) or await proved(found, opened=opened)


async def proved(found: Artifact, *, opened: Opened) -> TreeBug | Problem:
    """The bug of an artifact whose diff stays in code files, as `examine_artifact`.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    checked = await checks.prove(found, grounds=opened.grounds, budget=opened.budget)
    if isinstance(checked, Problem):
        return checked
    told, case = checked
    repository = opened.verifier.repository
    weak = case.weak or {}
    return TreeBug(
        artifact=told,
        code=case.code,
        weak=weak,
        tests=case.tests,
        failing=case.failing,
        specification=diff_of(weak, contents(repository, weak)),
        touched=_touched(repository, case.code),
        dropped=case.dropped,
    )


async def task_payload(bug: TreeBug, *, opened: Opened, key: str, cache: Path) -> Mapping[str, Any] | Problem:
    """The payload of the task `key`, JSON, with its canaries; a problem where it fails a control, or gives itself away.

    `artifact`, `specification`, `failing` (pairs of test and message), `tests`, `canaries`, and `path` and `qualname`
    of the function where it is a single plain one.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
        NotReady: git is not there.
    """
    told, budget = bug.artifact, opened.budget(bug.tests)
    payload: dict[str, Any] = {
        "artifact": {
            "test_files": list(told.test_files),
            "bug": told.bug,
            "weakening": told.weakening,
            "order": told.order,
        },
        "specification": bug.specification,
        "failing": [[test, said] for test, said in bug.failing.items()],
        "tests": list(bug.tests),
        **_place(bug, opened.verifier.repository),
    }
    try:
        await asyncio.to_thread(handed_to_solver, payload, repository=opened.verifier.repository, cache=cache)
    except GivesAway as error:
        return Problem(reason=GIVES_AWAY, why=f"a solver would be shown the answer: {error}"[:300], failing=bug.failing)
    payload["canaries"] = await verdict.prepare(
        opened.verifier, failing=list(bug.failing), tests=bug.tests, key=key, budget=budget
    )
    problem = await controls.why_quarantined(opened.verifier, payload, code=bug.code, budget=budget)
    return payload if problem is None else problem


async def judge_patch(patch: str, payload: Mapping[str, Any], *, opened: Opened) -> Decision | Problem:
    """What becomes of a repair: `patch` is a diff of the tree that the solver was handed.

    A problem where the diff cannot be read or applied, or nothing of it counts: a failed attempt.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    repaired = left_by(patch, payload, repository=opened.verifier.repository)
    if isinstance(repaired, Problem):
        return repaired
    decision = await verdict.decide(
        opened.verifier,
        payload,
        files=repaired.code,
        budget=opened.budget([str(test) for test in payload["tests"]]),
    )
    return dataclasses.replace(decision, dropped={**repaired.dropped, **decision.dropped})


@record
class Left:
    """Code files as a repair left them."""

    code: Files
    """All that differ from the clean tree, the bug's own among them."""
    dropped: Mapping[str, str]
    """What the repair's diff changes and may not -> why."""


def left_by(patch: str, payload: Mapping[str, Any], *, repository: Repository) -> Left | Problem:
    """What a repair makes of the tree of a task; a problem where its diff cannot be applied, or nothing of it counts.

    Raises:
        SandboxInfraError: git did not run.
        ValueError: the task is not of this tree.
    """
    start = _laid(payload, repository)
    found = patches.parse(patch.encode("utf-8", "surrogatepass"))
    if isinstance(found, patches.Refusal):
        return Problem(reason=found.reason, why=found.why)
    given = {**contents(repository, found.paths), **_only({**start.code, **start.tests}, found.paths)}
    tree = {path: body for path, body in given.items() if body is not None}
    repaired = patches.apply(patches.filtered(found), tree=tree)
    if isinstance(repaired, patches.Refusal):
        return Problem(reason=repaired.reason, why=repaired.why)
    return Left(code={**start.code, **repaired.files}, dropped=repaired.dropped)


async def examine_child(patch: str, payload: Mapping[str, Any], *, opened: Opened) -> TreeBug | Problem:
    """The second-order bug that a failed repair of a task left, proved like any other (§A.5); else the first problem.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
        ValueError: the task is not of this tree.
    """
    repository = opened.verifier.repository
    left = left_by(patch, payload, repository=repository)
    if isinstance(left, Problem):
        return left
    parent = artifact_of(payload)
    found = artifact.on_top(parent, attempt=left.code, repository=repository)
    if isinstance(found, Problem):
        return found
    bug = await proved(found, opened=opened)
    if isinstance(bug, TreeBug) and bug.artifact.bug == parent.bug:
        why = "what the attempt changed does nothing, and without it the bug is its parent"
        return Problem(reason=Reason.SAME_AS_PARENT, why=why, failing=bug.failing)
    return bug


def artifact_of(payload: Mapping[str, Any]) -> Artifact:
    """The artifact of a task."""
    told = payload["artifact"]
    return Artifact(
        test_files=tuple(told["test_files"]),
        bug=told["bug"],
        weakening=told["weakening"],
        order=int(told.get("order", 1)),
    )


def handed_to_solver(payload: Mapping[str, Any], *, repository: Repository, cache: Path) -> Handed:
    """The tree of a task: one commit of the buggy code with the weakened tests, kept in `cache` by content.

    Raises:
        GivesAway: it would show what has to be found.
        SandboxInfraError, NotReady: git did not run, or is not there.
    """
    start = _laid(payload, repository)
    return handed(repository, files={**start.code, **start.tests}, cache=cache)


def handed_to_proposer(repository: Repository, *, cache: Path) -> Handed:
    """The clean tree, one commit, kept in `cache` by content.

    Raises:
        GivesAway, NotReady: as `handed_to_solver`.
    """
    return handed(repository, files={}, cache=cache)


def solver_archive(payload: Mapping[str, Any], *, repository: Repository, cache: Path) -> Path:
    """The tar of `handed_to_solver`, for `SandboxSpec.archive`; raises what that raises."""
    return handed_to_solver(payload, repository=repository, cache=cache).archive


def _why_outside(found: Artifact) -> Problem | None:
    """Why the bug's diff is refused for the files that it touches."""
    bug = patches.parse(found.bug.encode())
    if isinstance(bug, patches.Refusal):
        return Problem(reason=bug.reason, why=f"the bug's diff: {bug.why}")
    for path in bug.paths:
        if why := why_dropped(path):
            return Problem(reason=FORBIDDEN, why=f"the bug's diff changes {path[:100]}, which is {why}")
    return None


def _laid(payload: Mapping[str, Any], repository: Repository) -> Applied:
    """What the artifact of a payload makes of the clean tree.

    Raises:
        SandboxInfraError: git did not run.
        ValueError: it does not apply: the payload is of another tree.
    """
    found = artifact.applied(artifact_of(payload), repository=repository)
    if isinstance(found, Problem):
        raise ValueError(f"the task is not of {repository.name} as it is now: {found.why}")
    return found


def _only(files: Files, paths: tuple[str, ...]) -> dict[str, bytes | None]:
    return {path: body for path, body in files.items() if path in paths}


def _touched(repository: Repository, code: Files) -> tuple[str, ...]:
    """Functions that the bug changes or takes away, by path and name; a path where something else changes."""
    found: list[str] = []
    clean = contents(repository, code)
    for path, body in sorted(code.items()):
        before, now = (_functions(path, one) for one in (clean[path], body))
        changed = [name for name, source in before.items() if now.get(name) != source]
        found += [f"{path}::{name}" for name in changed] or [path]
    return tuple(found)


def _functions(path: str, body: bytes | None) -> dict[str, str]:
    """Name -> source."""
    text = body.decode(errors="replace") if body is not None and path.endswith(".py") else ""
    return {function.qualname: function.source for function in functions_of(text, path=path)}


def _place(bug: TreeBug, repository: Repository) -> dict[str, str]:
    """Path and name of the one function that the bug changes and leaves defined; empty where it is not one."""
    [path, _, name] = bug.touched[0].partition("::")
    if len(bug.touched) == 1 and name in _functions(path, bug.code.get(path)):
        return {"path": path, "qualname": name}
    return {}
