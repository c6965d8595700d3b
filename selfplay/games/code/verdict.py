"""Decides an attempt: passed, failed, forged, or suspicious (research note `sandboxes.md` §5.3, protocol C).

What is covered: `prepare` makes and proves the canaries of a task, once; `decide` filters a candidate's files, runs the
task's tests and canaries in one session of one fresh sandbox, and concludes. A report that cannot be true is a failed
attempt; a change that could deceive the canaries, and passes, is left undecided, without a reward, and so is one whose
function gives other answers than the original on inputs that the tests do not show (`differential`). Equal tasks have
equal canaries, and equal candidates equal decisions.

What is not covered: hidden tests; taking a diff out of a sandbox (`Sandbox.diff`); rewards (`game`).

Example:
    >>> payload["canaries"] = await prepare(verifier, failing=f, tests=t, key="task", budget=b)  # doctest: +SKIP
    >>> (await decide(verifier, payload, files={"pkg/a.py": b"..."}, budget=b)).passed  # doctest: +SKIP
    True
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from selfplay.games.code import differential
from selfplay.games.code.canaries import Canaries, Canary, canaries_of, proved, why_forged, why_odd
from selfplay.games.code.differential import Compared
from selfplay.games.code.protected import filtered
from selfplay.games.code.suspicion import flags_of
from selfplay.games.code.verify import Budget, Ended, Run, Verifier
from selfplay.types import digest, draw, record

MOST = 4
"""Test functions of a task that get canaries; which is drawn, and those that fail come before others."""
TRIES = 12
"""Runs on the clean tree that may be spent on finding out which changed copy ends the session."""
_SLACK = 2.0
"""How much more processor time a session with canaries may use than its tests alone."""


@record
class Decision:
    """What became of an attempt."""

    passed: bool | None
    """None: suspicious, so that nothing follows from it."""
    kind: Literal["passed", "failed", "unfinished", "forged", "suspicious"]
    why: str
    """One sentence, without the name of a test for `passed` and `failed`."""
    run: Run
    """What the task's tests did, canaries left out."""
    failed: Mapping[str, str]
    """Tests of the task that did not pass -> message; an intact copy's message stands for its test."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Files of the candidate that do not count -> why."""
    flags: tuple[str, ...] = ()
    """What is suspicious in the others."""
    compared: Compared | None = None
    """With the original function; None where the tests decided, or nothing is changed."""


async def prepare(
    verifier: Verifier, *, failing: Sequence[str], tests: Sequence[str], key: str, budget: Budget
) -> Mapping[str, Any]:
    """The canaries of a task, as JSON: modules, what each of their tests must do, and the order of the session.

    `failing` and `tests` are ids that pass on the clean tree; `budget` is what `tests` may use, `key` names the task.
    They are run once on the clean tree, in the order that attempts get; more often only where that shows trouble.
    What cannot be proved is in `left_out`, with the reason.

    Raises:
        SandboxInfraError: the machine failed.
    """
    made, left_out = _made(verifier, _drawn(failing, tests, key=key), key=key)
    shuffled = True
    run = await _session(verifier, made, tests=tests, key=key, shuffled=True, budget=budget)
    if run.ended is Ended.COMPLETED and any(test in run.failed for test in tests):
        # note: tests that rest on their order are run in it; that they pass together is known from the survey.
        shuffled = False
        run = await _session(verifier, made, tests=tests, key=key, shuffled=False, budget=budget)
    if run.ended is Ended.COMPLETED and not run.odd:
        passed, failed = set(run.passed), run.failed
    else:
        passed, failed = await _halved(verifier, made, budget=budget)
    kept = [proved(one, passed=passed, failed=failed) for one in made]
    for one in kept:
        left_out |= {f"{one.of}::{name}": why for name, why in one.left_out.items()}
    return {
        "key": key,
        "shuffled": shuffled,
        "modules": [_packed(one) for one in kept if len(one.canaries) > 1],
        "left_out": left_out,
    }


async def decide(
    verifier: Verifier, payload: Mapping[str, Any], *, files: Mapping[str, bytes | None], budget: Budget
) -> Decision:
    """What becomes of the clean tree with `files` in place of its own, by `tests` and `canaries` of a task's payload.

    A payload without `canaries`, or without the function's `path` and `qualname`, is judged without what needs them.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    told = payload.get("canaries") or {"key": "", "shuffled": False, "modules": []}
    tests = [str(test) for test in payload["tests"]]
    modules = from_payload(told)
    brought, dropped = filtered(files, tree=verifier.repository.files)
    # note: a fresh tree holds everything that was dropped as it was, without links over which it could be written, and
    # the canaries come last. What is as it was is no change, so that equal trees share one session.
    changed = {path: body for path, body in brought.items() if body is None or body != _clean(verifier, path)}
    run = await _session(
        verifier,
        modules,
        tests=tests,
        key=told["key"],
        shuffled=told["shuffled"],
        budget=budget,
        files=changed,
    )
    decision = _concluded(run, modules, tests=tests)
    flags = tuple(dict.fromkeys(_flags(verifier, changed)))
    decision = dataclasses.replace(decision, dropped=dropped, flags=flags)
    if decision.passed and flags:
        return dataclasses.replace(decision, passed=None, kind="suspicious", why="; ".join(flags))
    if decision.passed:
        found = await differential.judged(verifier, payload, files=changed, budget=budget)
        decision = dataclasses.replace(decision, compared=found)
        if found is not None and found.odd:
            return dataclasses.replace(decision, passed=None, kind="suspicious", why=found.why)
    return decision


def from_payload(told: Mapping[str, Any]) -> tuple[Canaries, ...]:
    """The modules of what `prepare` returned."""
    return tuple(
        Canaries(
            of=one["of"],
            path=one["path"],
            text=one["text"],
            nonce=one["nonce"],
            canaries=tuple(Canary(**canary) for canary in one["canaries"]),
            left_out={},
        )
        for one in told["modules"]
    )


def _packed(one: Canaries) -> Mapping[str, Any]:
    told = dataclasses.asdict(one)
    del told["left_out"]
    return {**told, "canaries": list(told["canaries"])}


def _drawn(failing: Sequence[str], tests: Sequence[str], *, key: str) -> list[str]:
    """Tests in the order in which they get canaries; of functions that fail, the parameters with which they do."""
    first, known = set(failing), {test.partition("[")[0] for test in failing}
    offered = [test for test in tests if test in first or test.partition("[")[0] not in known]
    return sorted(offered, key=lambda test: (test not in first, draw("chosen", key, test.partition("[")[0]), test))


def _made(verifier: Verifier, tests: Sequence[str], *, key: str) -> tuple[list[Canaries], dict[str, str]]:
    """Canaries of the first `MOST` test functions, a module for each of their files."""
    chosen: dict[str, list[str]] = {}
    for test in tests:
        chosen.setdefault(test.partition("[")[0], []).append(test)
    files: dict[str, list[str]] = {}
    for named in list(chosen.values())[:MOST]:
        files.setdefault(named[0].partition("::")[0], []).extend(test.partition("::")[2] for test in named)
    made: list[Canaries] = []
    left_out: dict[str, str] = {}
    for path, names in files.items():
        taken = {*verifier.repository.files, *(one.path for one in made)}
        rng = random.Random(draw("canaries", key, path))
        try:
            source = verifier.repository.read(path)
            nonce = digest("nonce", key, path)[:16]
            made.append(canaries_of(source, names, path=path, nonce=nonce, rng=rng, taken=taken))
        except (OSError, ValueError) as error:
            left_out |= dict.fromkeys((f"{path}::{name}" for name in names), str(error))
    return made, left_out


async def _session(
    verifier: Verifier,
    modules: Sequence[Canaries],
    *,
    tests: Sequence[str],
    key: str,
    shuffled: bool,
    budget: Budget,
    files: Mapping[str, bytes | None] | None = None,
) -> Run:
    """One run of tests and canaries, with `files` and then the canaries laid over the clean tree."""
    laid = {**(files or {}), **{one.path: one.text.encode() for one in modules}}
    wanted = [*tests, *(node for one in modules for node in one.nodes)]
    if shuffled:
        wanted.sort(key=lambda node: draw("order", key, node))
    if not modules:
        return await verifier.run(wanted, budget=budget, change=laid)
    return await verifier.run(wanted, budget=_larger(budget), change=laid, ordered=True)


def _larger(budget: Budget) -> Budget:
    return dataclasses.replace(budget, cpu_seconds=budget.cpu_seconds * _SLACK)


async def _halved(
    verifier: Verifier, modules: Sequence[Canaries], *, budget: Budget
) -> tuple[set[str], dict[str, str]]:
    """What passed and failed of canaries of which one ends the session, found by halves."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    laid = {one.path: one.text.encode() for one in modules}
    todo = [[node for one in modules for node in one.nodes]]
    for _ in range(TRIES):
        if not todo:
            break
        nodes = todo.pop(0)
        run = await verifier.run(nodes, budget=_larger(budget), change=laid, ordered=True)
        if run.ended is Ended.COMPLETED and not run.odd:
            passed |= set(run.passed)
            failed |= run.failed
        elif len(nodes) > 1:
            todo += [nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]]
    return passed, failed


def _concluded(run: Run, modules: Sequence[Canaries], *, tests: Sequence[str]) -> Decision:
    """What follows from a session, the candidate's files aside."""
    failed = {test: run.failed[test] for test in tests if test in run.failed}
    passed = set(run.passed)
    own = dataclasses.replace(run, passed=tuple(test for test in tests if test in passed), failed=failed)
    if run.ended is not Ended.COMPLETED:
        return Decision(passed=False, kind="unfinished", why=run.detail, run=own, failed=failed)
    copies = {canary.node: canary for one in modules for canary in one.canaries if canary.kind == "clone"}
    if not failed and not run.odd:
        place = {canary.node: one.of for one in modules for canary in one.canaries}
        failed = {f"{place[node]}::{copies[node].of}": said for node, said in run.failed.items() if node in copies}
    if failed:
        return Decision(passed=False, kind="failed", why="", run=own, failed=failed)
    why = run.odd or _first(why_forged(one, passed=passed, failed=run.failed) for one in modules)
    if why:
        return Decision(passed=False, kind="forged", why=why, run=own, failed={})
    why = _first(why_odd(one, passed=passed) for one in modules)
    if why:
        return Decision(passed=None, kind="suspicious", why=why, run=own, failed={})
    return Decision(passed=True, kind="passed", why="", run=own, failed={})


def _flags(verifier: Verifier, files: Mapping[str, bytes | None]) -> Iterator[str]:
    """What is suspicious in what files say that they do not say in the clean tree."""
    for path, body in files.items():
        if body is not None and path.endswith(".py"):
            before = _clean(verifier, path) or b""
            yield from flags_of(before.decode(errors="replace"), body.decode(errors="replace"))


def _first(sentences: Iterable[str]) -> str:
    return next(filter(None, sentences), "")


def _clean(verifier: Verifier, path: str) -> bytes | None:
    """A file of the clean tree; None where there is none."""
    repository = verifier.repository
    return (repository.root / path).read_bytes() if path in repository.files else None
