"""Compares a candidate's function with the original on inputs like those of the tests: advice, never a verdict.

What is covered: `prepare` finds inputs and what the clean function gives for each, once a task; `compare` asks a
candidate's function the same, in a fresh sandbox that holds no answer. It tells answers made for the visible inputs
from repairs. Inputs are the arguments that the tests use and others of the same kind (`differ`).

What is not covered: methods, decorated and asynchronous functions, arguments that cannot be copied; strategies made of
annotations. A difference may lie where nobody promised anything, so it is shown and decides nothing.

Example:
    >>> told = await prepare(verifier, path="m.py", qualname="f", tests=t, key="k", budget=b)  # doctest: +SKIP
    >>> (await compare(verifier, told, files={"m.py": b"..."}, budget=b)).why  # doctest: +SKIP
    '31 of 200 answers differ from the original function, first f(2, 2): 0 where the original gives 4'
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from selfplay.games.code.verify import Budget, Verifier, variables
from selfplay.types import draw, record

MOST = 200
"""Inputs of a task."""
SHARE = 0.05
"""Of different answers, from which it is more than a slip where nobody promised anything. Honest repairs of the
attacks' packages differ on at most 0.8 %, tables of the visible inputs on at least 21 %."""
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


async def prepare(
    verifier: Verifier, *, path: str, qualname: str, tests: Sequence[str], key: str, budget: Budget, most: int = MOST
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
        "seed": draw("differential", key),
        "most": most,
    }
    found = await _asked(verifier, request, files=None, budget=budget)
    return {"module": module, "qualname": qualname, **found}


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
    inputs = [case["input"] for case in cases]
    request = {"mode": "answer", "module": told["module"], "qualname": told["qualname"], "inputs": inputs}
    found = await _asked(verifier, request, files=files, budget=budget)
    answers = found.get("answers")
    if not isinstance(answers, list) or len(answers) != len(cases):
        return Compared(total=0, different=0, why=f"not compared: {found.get('why_not', 'it gave no answers')}"[:300])
    wrong = [(case, str(answer)) for case, answer in zip(cases, answers, strict=True) if case["gives"] != answer]
    why = ""
    if wrong:
        case, answer = wrong[0]
        call = f"{told['qualname']}({case['shown']})"
        why = f"{len(wrong)} of {len(cases)} answers differ from the original function, first {call}: "
        why += f"{answer[:80]} where the original gives {case['gives'][:80]}"
    return Compared(total=len(cases), different=len(wrong), why=why)


async def _asked(
    verifier: Verifier, request: Mapping[str, Any], *, files: Mapping[str, bytes | None] | None, budget: Budget
) -> Mapping[str, Any]:
    """The program's answer from a fresh sandbox; untrusted where `files` are a candidate's."""
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
        if result.timed_out:
            return {"why_not": "it did not end within the time limit"}
        await sandbox.sweep()
        try:
            found = json.loads(await sandbox.get(to, max_bytes=MAX_ANSWER))
        except (FileNotFoundError, PermissionError, ValueError, RecursionError):
            return {"why_not": f"it left no answer (exit code {result.exit_code})"}
    return found if isinstance(found, dict) else {"why_not": "its answer is none"}


def _module(path: str, *, roots: Sequence[str]) -> str | None:
    """The dotted name that a file is imported by; None where it has none."""
    for root in sorted(roots, key=len, reverse=True):
        if not root or path.startswith(f"{root}/"):
            parts = PurePosixPath(path.removeprefix(f"{root}/") if root else path).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None
    return None
