"""Compares a candidate's function with the original on inputs like those of the tests: answers for visible inputs only.

What is covered: `judged` asks a candidate's function for its answers, in a fresh sandbox that holds none of the
original's, and compares; `prepare` finds the inputs and what the clean function gives for each, once for a function and
its tests. Inputs are the arguments that the tests use and others of the same kind (`differ`); those on which the clean
function, asked as candidates are, gives another answer are left out. A candidate that gives no answers at all where the
original does counts as different in all. Nothing is refused for it: `verdict` leaves the attempt undecided.

What is not covered: methods, decorated and asynchronous functions, arguments that cannot be copied; strategies made of
annotations; a table of the visible inputs over a bug that shows on fewer than `SHARE` of the inputs.

Example:
    >>> found = await judged(verifier, payload, files={"m.py": b"..."}, budget=b)  # doctest: +SKIP
    >>> found.why  # doctest: +SKIP
    '31 of 200 answers differ from the original function, first f(2, 2): 0 where the original gives 4'
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from selfplay.games.code.verify import Budget, Executed, Verifier, place_of, variables
from selfplay.types import digest, draw, record

MOST = 200
"""Inputs of a function."""
SHARE = 0.05
"""Of different answers, from which it is more than a slip where nobody promised anything. Honest repairs of the
attacks' packages differ on at most 1.5 %, tables of the visible inputs on at least 19 %."""
SECONDS = 120.0
"""Wall-clock seconds of a session, at the least; it is limited by processor time (`differ`), and this stands behind."""
MAX_ANSWER = 8 << 20
_PROGRAM = Path(__file__).with_name("differ.py")


@record
class Compared:
    """What came out."""

    total: int
    """Inputs that were compared; 0 where nothing was."""
    different: int
    why: str
    """One sentence: the first difference, or why nothing was compared; empty where all answers are equal."""

    @property
    def odd(self) -> bool:
        """Does it look like another function?"""
        return self.different >= SHARE * self.total > 0


async def judged(
    verifier: Verifier, payload: Mapping[str, Any], *, files: Mapping[str, bytes | None], budget: Budget
) -> Compared | None:
    """How the function of a task's payload differs with `files`; None where the payload names none, or nothing differs.

    Raises:
        SandboxInfraError: the machine failed.
    """
    if not files or "path" not in payload or "qualname" not in payload:
        return None
    told = await prepare(
        verifier, path=payload["path"], qualname=payload["qualname"], tests=payload["tests"], budget=budget
    )
    return await compare(verifier, told, files=files, budget=budget)


async def prepare(
    verifier: Verifier, *, path: str, qualname: str, tests: Sequence[str], budget: Budget, most: int = MOST
) -> Mapping[str, Any]:
    """Inputs of a function of the clean tree with what it gives, as JSON; `why_not` where there are none.

    Raises:
        SandboxInfraError: the machine failed.
    """
    module = _module(path, roots=verifier.suite.roots)
    if module is None or "." in qualname:
        return {"why_not": "it is no plain function of a module"}
    request = {
        "mode": "record",
        "module": module,
        "qualname": qualname,
        "tests": list(tests),
        "paths": sorted({test.partition("::")[0] for test in tests}),
        "options": list(verifier.suite.options),
        "seed": draw("differential", path, qualname),
        "most": most,
    }
    found = await _asked(verifier, request, files=None, budget=budget)
    told = {"module": module, "qualname": qualname, **found}
    if "why_not" in found:
        return told
    # note: tests leave things behind, and some answers rest on them or on where an object lies; those are no answers.
    again = await _asked(verifier, _question(told), files=None, budget=budget)
    pairs = zip(told["cases"], again.get("answers", ()), strict=False)
    cases = [case for case, answer in pairs if case["gives"] == answer]
    return {**told, "cases": cases} if cases else {"why_not": "it gives other answers after its tests than alone"}


async def compare(
    verifier: Verifier, told: Mapping[str, Any], *, files: Mapping[str, bytes | None], budget: Budget
) -> Compared:
    """How a candidate's answers differ from what `prepare` found; `files` is what differs from the clean tree.

    Raises:
        SandboxInfraError: the machine failed.
    """
    if "why_not" in told:
        return Compared(total=0, different=0, why=f"not compared: {told['why_not']}")
    cases = told["cases"]
    found = await _asked(verifier, _question(told), files=files, budget=budget)
    answers = found.get("answers")
    if not isinstance(answers, list) or len(answers) != len(cases):
        why = f"it gives no answers where the original function gives {len(cases)}: "
        return Compared(total=len(cases), different=len(cases), why=_plain(f"{why}{found.get('why_not')}")[:300])
    wrong = [(case, str(answer)) for case, answer in zip(cases, answers, strict=True) if case["gives"] != answer]
    why = ""
    if wrong:
        case, answer = wrong[0]
        call = f"{told['qualname']}({case['shown']})"
        why = f"{len(wrong)} of {len(cases)} answers differ from the original function, first {call}: "
        why += f"{answer[:80]} where the original gives {case['gives'][:80]}"
    return Compared(total=len(cases), different=len(wrong), why=_plain(why))


def _question(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a candidate is asked."""
    inputs = [case["input"] for case in told["cases"]]
    return {"mode": "answer", "module": told["module"], "qualname": told["qualname"], "inputs": inputs}


async def _asked(
    verifier: Verifier, request: Mapping[str, Any], *, files: Mapping[str, bytes | None] | None, budget: Budget
) -> Mapping[str, Any]:
    """The program's answer from a fresh sandbox, once for equal files; untrusted where they are a candidate's."""
    key = digest("differ", verifier.repository.digest, dict(request), place_of(files))

    async def made() -> Mapping[str, Any]:
        patient = Budget(cpu_seconds=budget.cpu_seconds, seconds=max(SECONDS, budget.seconds))
        return _read(await verifier.tried(request, budget=patient, by=functools.partial(_run, verifier, files)))

    return await verifier.answers.get(key, made)


async def _run(
    verifier: Verifier, files: Mapping[str, bytes | None] | None, request: Mapping[str, object], *, budget: Budget
) -> Executed:
    # note: outside the tree, but where nothing is isolated /tmp is the host's, and the work tree is what goes away.
    to = ("/tmp/" if verifier.provider.capabilities.isolated else ".") + secrets.token_hex(16)
    whole = {**request, "roots": list(verifier.suite.roots), "to": to}
    async with verifier.sandbox(change=files) as sandbox:
        result = await sandbox.exec(
            [verifier.provider.python, "-s", "-P", "-B", "-c", _PROGRAM.read_text(encoding="utf-8")],
            timeout_seconds=budget.seconds,
            env=variables(),
            stdin=json.dumps(whole).encode(),
            output_limit=1 << 12,
        )
        await sandbox.sweep()
        try:
            report = await sandbox.get(to, max_bytes=MAX_ANSWER)
        except (FileNotFoundError, PermissionError, ValueError):
            report = None
    return Executed(result=result, report=report)


def _read(done: Executed) -> Mapping[str, Any]:
    """What the program left; `why_not` where that is nothing."""
    if done.result.timed_out:
        return {"why_not": "it did not end within the time limit"}
    if done.report is None:
        return {"why_not": f"it left no answer (exit code {done.result.exit_code})"}
    try:
        found = json.loads(done.report)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"why_not": "its answer cannot be read"}


def _plain(text: str) -> str:
    """What a ledger can hold: a candidate's words may have halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


def _module(path: str, *, roots: Sequence[str]) -> str | None:
    """The dotted name that a file is imported by; None where it has none."""
    for root in sorted(roots, key=len, reverse=True):
        if not root or path.startswith(f"{root}/"):
            parts = PurePosixPath(path.removeprefix(f"{root}/") if root else path).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None
    return None
