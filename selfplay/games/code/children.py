"""Second-order bugs: the broken function as a failed repair left it, proved like a proposal.

What is covered: the child of an attempt on a first-order bug (Self-play SWE-RL, arXiv 2512.18552; research note
`selfplay-papers.md` §A.5), which the paper makes without another validation. Here it goes through every check of a
proposal, since a failed repair may have mended half, broken what no test sees, or done nothing; it has the tests that
fail with it, and its own weakening. No model is called.

Refused beside what `checks` refuses: what is the parent again or the original, and what differs from the original in
more lines than a repair may edit, which no attempt could put back.

What is not covered: children of children (`choices` refuses them), the same bug minted before (the ledger knows), and
bugs in several files (`artifact.on_top`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from selfplay.games.code import checks, edits
from selfplay.games.code.bugs import CUT, Bug, Problem, Reason, Target
from selfplay.games.code.checks import Grounds
from selfplay.types import Trajectory


async def examine(attempt: Trajectory, parent: Mapping[str, Any], *, target: Target, grounds: Grounds) -> Bug | Problem:
    """The bug that `attempt` left of a task, proved by failing tests; else the first problem.

    `parent` is the task's payload, `target` its function in the clean tree.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    if attempt.stop.truncated:
        return Problem(reason=Reason.TRUNCATED, why=CUT)
    buggy, clean = str(parent["buggy"]), target.function.source
    edit = edits.parse(attempt.reply, source=buggy)
    if isinstance(edit, edits.Refusal):
        return Problem(reason=f"edit_{edit.reason}", why=edit.why)
    left = edits.apply(buggy, edit)
    if _program(left) == _program(clean):
        return Problem(reason=Reason.SAME_AS_ORIGINAL, why="the attempt put the original back", edit=edit)
    found = await checks.examine_edited(left, edit=edit, target=target, grounds=grounds)
    if isinstance(found, Problem):
        return found
    return _why_not_new(found, buggy=buggy) or found


def _why_not_new(found: Bug, *, buggy: str) -> Problem | None:
    """Why what was proved is no child; parts of the change that did nothing are gone by now."""
    problem = Problem(reason="", why="", edit=found.edit, failing=found.failing)
    if _program(found.source) == _program(buggy):
        why = "what the attempt changed does nothing, and without it the bug is its parent"
        return replace(problem, reason=Reason.SAME_AS_PARENT, why=why)
    # note: an edit keeps the number of lines, so the n-th is the n-th everywhere, but where a part of it was dropped.
    pairs = zip_longest(found.source.split("\n"), found.target.function.source.split("\n"), fillvalue="")
    changed = sum(one.rstrip() != other.rstrip() for one, other in pairs)
    if changed > edits.MAX_LINES:
        why = f"{changed} lines differ from the original, and a repair edits at most {edits.MAX_LINES}"
        return replace(problem, reason=Reason.TOO_FAR, why=why)
    return None


def _program(source: str) -> str:
    tree = edits.definition(source)
    return ast.dump(tree) if tree is not None else source
