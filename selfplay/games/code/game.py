"""The code game: an injector breaks one function of a real repository, a repairer mends it, tests decide.

What is covered: `CodeGame`, which implements `Game` for the single-turn form: seeds are functions that stable tests
reach, a proposal is an edit of one function, a task is the broken function with the tests that fail, an attempt is an
edit of that. Replies are untrusted text; whatever they hold, the answer is a verdict.

What is not covered: playing with a shell, bugs in several files, and what `bugs` and `verify` name as missing.

Example:
    >>> game = CodeGame(opening=Opening("pypi:toolz==1.2.0", ...), ...)  # doctest: +SKIP
    >>> (await game.seeds())[0].source  # doctest: +SKIP
    'pypi:toolz==1.2.0:toolz/functoolz.py::identity'
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfplay.games import NO_TERMS, Minted, Terms, kept_back
from selfplay.games.code import bugs, checks, children, controls, decisions, edits, given
from selfplay.games.code.bugs import Bug, Problem, Reason
from selfplay.games.code.opened import NAME, Opened
from selfplay.games.code.opening import Opening
from selfplay.games.code.verdict import decide, prepare
from selfplay.games.rewards import ALONE, Beside, PlusMinusOne, ProposerReward, SelfPlaySwe, SolverReward
from selfplay.rollout import render
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Example, Role, Seed, Split, Task, Trajectory, Verdict, task_id


class CodeGame:
    """Implements `Game` with pytest in sandboxes as its verifier."""

    name = NAME

    def __init__(
        self,
        *,
        opening: Opening,
        proposer: Role,
        solver: Role,
        config_digest: str,
        proposer_reward: ProposerReward | None = None,
        solver_reward: SolverReward | None = None,
    ) -> None:
        self.proposer = proposer
        self.solver = solver
        self.settings = opening.settings
        self._opening = opening
        self._config_digest = config_digest
        self._proposer_reward = proposer_reward or SelfPlaySwe()
        self._solver_reward = solver_reward or PlusMinusOne()

    async def seeds(self) -> Sequence[Seed]:
        """Every playable function, by path and line; the survey is cached by digest.

        Raises:
            UserError: the source cannot be played (no such package, no tests, failing suite).
            NotReady: no network, no git, no space, or a clean copy that solvers could read.
            SandboxInfraError: no sandbox could be made.
        """
        return (await self.opened()).seeds

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`function`: the clean function, numbered."""
        return {"function": edits.number(seed.payload["source"])}

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`function`: the broken function, numbered; `tests`: some failing tests and what they say, one a line.

        `hint`: which lines to look at, or empty.
        """
        tests = bugs.shown(dict(task.payload["failing"]), limit=self.settings.shown_tests)
        hint = bugs.whereabouts(task.payload["source"], task.payload["buggy"]) if terms.get("hint") else ""
        return {"function": edits.number(task.payload["buggy"]), "tests": tests, "hint": hint}

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """A task where the reply is an edit that passes every check and control (`checks.CHECKS`, `controls`)."""
        if proposal.stop.truncated:
            return Minted(
                verdict=decisions.refused(proposal, Problem(reason=Reason.TRUNCATED, why=bugs.CUT)), task=None
            )
        opened = await self.opened()
        finding = checks.examine(proposal.reply, target=opened.target(seed.payload), grounds=opened.grounds)
        return await self._minted(proposal, finding, opened=opened, seed=seed, step=proposal.step)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """A task where the function, as the attempt left it, passes every check and control of a proposal (`children`).

        All tests that reach the function are asked, not only those that decide the parent.
        """
        opened = await self.opened()
        seed = next(seed for seed in opened.seeds if seed.id == parent.seed_id)
        target = opened.target(seed.payload)
        finding = children.examine(attempt, parent.payload, target=target, grounds=opened.grounds)
        return await self._minted(attempt, finding, opened=opened, seed=seed, step=step)

    async def _minted(
        self, origin: Trajectory, finding: Awaitable[Bug | Problem], *, opened: Opened, seed: Seed, step: int
    ) -> Minted:
        async def make(bug: Bug) -> Task | Problem:
            made = await self._task(bug, opened=opened, seed=seed, step=step, parent_id=origin.id, split=seed.split)
            return replace(made, edit=bug.edit) if isinstance(made, Problem) else made

        return await decisions.minted(origin, finding, make=make, evidence=_evidence)

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Passed where the failing tests and all others that reach the function pass, and the report can be believed.

        Undecided without a fault where an attempt passes and is suspicious: it gets no reward.
        """
        opened = await self.opened()
        payload = task.payload
        evidence: dict[str, Any] = {}
        if attempt.stop.truncated:
            return self._failed(attempt, Reason.TRUNCATED, bugs.CUT, evidence)
        edit = edits.parse(attempt.reply, source=payload["buggy"])
        if isinstance(edit, edits.Refusal):
            return self._failed(attempt, f"edit_{edit.reason}", edit.why, evidence)
        candidate = edits.apply(payload["buggy"], edit)
        target = opened.target(payload)
        change = bugs.changed(target, candidate)
        evidence["edit"] = edit.text
        evidence["diff"] = bugs.diff(payload["buggy"], candidate, path=payload["path"])
        problem = bugs.why_not_loadable(target, change)
        if problem is not None:
            return self._failed(attempt, problem.reason, problem.why, evidence)
        try:
            files = {change.path: change.text.encode()}
            found = await decide(opened.verifier, payload, files=files, budget=target.budget)
        except SandboxInfraError as error:
            return decisions.undecided(attempt, "judge", error)
        failing = [test for test, _ in payload["failing"]]
        worth, path = self._solver_reward, payload["path"]
        return decisions.decided(attempt, found, failing=failing, path=path, evidence=evidence, worth=worth)

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """The proposer's reward from its task's solve rate; None where the mint or too many attempts are undecided."""
        return decisions.graded(proposal, minted, judged, worth=self._proposer_reward, beside=beside)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples of both roles, of train functions outside the dev set and of the standard library.

        `seeds` must have been awaited: the functions are the repository's.
        """
        opened = self._opening.surveyed
        roles = {"injector": self.proposer, "repairer": self.solver}
        made = [opened.example(index, seed=seed) for index in range(first, first + count)]
        return tuple(
            Example(
                role=roles[one.role].name,
                source=one.origin,
                prompt=render(roles[one.role], {**one.variables, "hint": ""}),
                replies=one.replies,
                template=roles[one.role].template,
            )
            for one in made
        )

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Train seeds that no warm-up example is made of, and one proved procedural bug in each that has one."""
        opened = await self.opened()
        found = await asyncio.gather(*(self._given(seed, opened) for seed in opened.dev))
        return opened.dev, tuple(task for task in found if task is not None)

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Held-out seeds, and one proved procedural bug in each of up to `count` of them that have one."""
        opened = await self.opened()
        return await given.held_out(kept_back(opened.seeds), count, make=lambda seed: self._given(seed, opened))

    async def given(self, seed: Seed) -> Task | None:
        """A proved procedural bug in the seed's function, of the seed's split."""
        return await self._given(seed, await self.opened(), split=seed.split)

    async def planted(self, seed: Seed, source: str) -> Task | Problem:
        """The held-out task in which the seed's function reads `source`, by the checks and controls of a proposal.

        Raises:
            SandboxInfraError: the machine failed.
        """
        opened = await self.opened()
        clean = seed.payload["source"].split("\n")
        lines = [(n, new) for n, (old, new) in enumerate(zip(clean, source.split("\n"), strict=False), 1) if old != new]
        found = await checks.examine_edited(
            source, edit=edits.Edit(lines=tuple(lines)), target=opened.target(seed.payload), grounds=opened.grounds
        )
        if isinstance(found, Problem):
            return found
        return await self._task(found, opened=opened, seed=seed, step=-1, parent_id=None, split="held_out")

    async def aclose(self) -> None:
        """Close every sandbox made here."""
        await self._opening.aclose()

    @property
    def cache(self) -> Path:
        """Where what was found out about the repository is kept."""
        return self._opening.cache

    @property
    def surveyed(self) -> Opened:
        """The repository, which `seeds` opened before."""
        return self._opening.surveyed

    async def opened(self) -> Opened:
        """The repository, surveyed once; raises what `seeds` raises."""
        return await self._opening.opened()

    async def _given(self, seed: Seed, opened: Opened, *, split: Split = "held_out") -> Task | None:
        def make(bug: Bug) -> Awaitable[Task | Problem]:
            return self._task(bug, opened=opened, seed=seed, step=-1, parent_id=None, split=split)

        return await given.given(seed, opened, make=make)

    async def _task(
        self, bug: Bug, *, opened: Opened, seed: Seed, step: int, parent_id: str | None, split: Split
    ) -> Task | Problem:
        """The task of a bug, with its canaries; a problem where it fails a control.

        Raises:
            SandboxInfraError: the machine failed.
        """
        # note: a given task is another task than the same bug proposed in play, or that would be its duplicate.
        key = bugs.key_of(bug.target.function, bug.source, bug.failing)
        key = key if split == "train" else f"{split}:{key}"
        name, budget = task_id(self._config_digest, game=NAME, key=key), bug.target.budget
        payload = {
            **{part: seed.payload[part] for part in ("path", "qualname", "line", "source", "doc")},
            "buggy": bug.source,
            "failing": [[test, said] for test, said in bug.failing.items()],
            "tests": list(bug.tests),
            "artifact": {
                "test_files": list(bug.artifact.test_files),
                "bug": bug.artifact.bug,
                "weakening": bug.artifact.weakening,
            },
            "canaries": await prepare(
                opened.verifier, failing=list(bug.failing), tests=bug.tests, key=name, budget=budget
            ),
        }
        problem = await controls.why_quarantined(opened.verifier, payload, code=bug.code, budget=budget)
        if problem is not None:
            return problem
        return Task(
            id=name,
            game=NAME,
            seed_id=seed.id,
            key=key,
            payload=payload,
            split=split,
            step=step,
            parent_id=parent_id,
        )

    def _failed(self, attempt: Trajectory, reason: str, why: str, evidence: Mapping[str, Any]) -> Verdict:
        """An attempt that no test had to decide."""
        worth = self._solver_reward
        return decisions.judged(attempt, False, reason, why, evidence, worth=worth, valid=False)


def _evidence(bug: Bug) -> Mapping[str, Any]:
    function = bug.target.function
    return {
        "edit": bug.edit.text,
        "diff": bugs.diff(function.source, bug.source, path=function.path),
        "failing": [[test, said] for test, said in bug.failing.items()],
        "num_tests": len(bug.tests),
        "run": bug.first.key,
        **({"num_dead_hunks": len(bug.dropped), "dead_hunks": list(bug.dropped)} if bug.dropped else {}),
    }
