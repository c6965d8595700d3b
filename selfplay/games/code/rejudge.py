"""A stored bug, proved again: the verdict protocol accepts the clean code and refuses the bug as it is.

What is covered: both controls of one task under the rules that attempts are judged by today, and the files of a task's
bug. What is not: attempts (`CodeGame.judge`), the other controls (`controls`), how a bug was found (`checks`).
"""

from __future__ import annotations

from selfplay.games.code import artifact, bugs, verdict
from selfplay.games.code.artifact import Files
from selfplay.games.code.bugs import Problem
from selfplay.games.code.game import CodeGame
from selfplay.games.code.source import Repository
from selfplay.games.code.survey import Function
from selfplay.games.code.tree_game import TreeGame
from selfplay.games.code.verdict import Decision
from selfplay.games.code.verify import Budget
from selfplay.types import Task, record


@record
class Proof:
    """What became of the two controls."""

    gold: bool
    """The clean code is accepted."""
    noop: bool
    """The bug as it is is accepted, or not decided, which it must not be."""
    why: str
    """One sentence; empty where the bug still is one."""

    @property
    def holds(self) -> bool:
        """It still is a bug."""
        return self.gold and not self.noop and not self.why


@record
class Made:
    """Files of a bug: path -> content, None where it is gone."""

    code: Files
    tests: Files
    """As weakened."""


async def proved(game: CodeGame | TreeGame, task: Task) -> Proof:
    """Run the controls of a task.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
        ValueError: the task is not of this tree.
    """
    opened, payload = await game.opened(), task.payload
    budget = opened.target(payload).budget if "buggy" in payload else opened.budget(payload["tests"])
    made = made_of(task, repository=opened.verifier.repository)
    gold = await verdict.decide(opened.verifier, payload, files={}, budget=budget)
    noop = await verdict.decide(opened.verifier, payload, files=made.code, budget=budget)
    why = ""
    if gold.passed is not True:
        why = f"the clean code is not accepted: {_said(gold)}"
    elif noop.passed is not False:
        why = f"the bug is {'accepted' if noop.passed else 'not refused'} as it is"
    return Proof(gold=gold.passed is True, noop=noop.passed is not False, why=why)


def made_of(task: Task, *, repository: Repository) -> Made:
    """What a task's bug and its weakening make of the clean tree; tasks of older runs have no weakening.

    Raises:
        ValueError: the task is not of this tree.
    """
    payload, told = task.payload, task.payload.get("artifact")
    if told is None:
        place = {name: payload[name] for name in ("path", "qualname", "line", "source", "doc")}
        function = Function(**place, tests=tuple(payload["tests"]))
        nothing = Budget(cpu_seconds=0.0, seconds=0.0)
        target = bugs.target_of(function, text=repository.read(payload["path"]), budget=nothing)
        return Made(code={payload["path"]: bugs.changed(target, payload["buggy"]).text.encode()}, tests={})
    kept = artifact.Artifact(test_files=tuple(told["test_files"]), bug=told["bug"], weakening=told["weakening"])
    found = artifact.applied(kept, repository=repository)
    if isinstance(found, Problem):
        raise ValueError(f"task {task.id[:12]}: {found.why}")
    return Made(code=found.code, tests=found.tests)


def _said(found: Decision) -> str:
    test, said = next(iter(found.failed.items()), ("", found.why))
    return f"{bugs.short(test)}: {said}" if test else said
