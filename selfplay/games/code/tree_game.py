"""The code game played with tools: a whole repository is broken, hidden from its tests, and repaired in a sandbox.

The agentic form of Self-play SWE-RL (arXiv 2512.18552; research note `selfplay-papers.md` §A): a proposer explores the
clean tree and hands over the five files of an artifact; a solver is handed the broken tree with the weakened tests, and
its repair is what differs in its work tree.

What is covered: `TreeGame`, which implements `Game`, `GivesTools`, `MakesTasks` and `ProposesAlone`. Seeds are those
of the other form (`CodeGame`), so that what is held out is the same for both: a proposer is told the module of its
seed's function and explores by itself, and what changes a function that is held out is no task. Tools are given one
play at a time, and at most as many plays have them as sandboxes may run at once. Held-out tasks are the procedural bugs
of the other form, as artifacts; an evaluation may tell them by an issue in people's words (`evaluation.issues`).

A proposer is told what the survey found out (how the tests run, which there are: the stage DISCOVER, made once for a
repository) and works in the stages INJECT and WEAKEN, or in a single session (`staged`). How it is asked to break
things is a strategy by name (`games.CODE_STRATEGIES`; where a choice names none, by removal); its tree holds the
repository's history where the source has one (`history`), a solver's tree never does. For one strategy no model is
asked: its proposals are mutations (`given`). A part of the tests can be held back from the solver (`hidden`).

What is not covered: warm-up examples (`parts` refuses a warm-up).

Example:
    >>> game = TreeGame(opening=Opening("pypi:toolz==1.2.0", ...), ...)  # doctest: +SKIP
    >>> tools = await game.toolbox(game.proposer, seed)  # doctest: +SKIP
    >>> await tools.call(Call(name="bash", arguments={"command": "ls"}))  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import functools
import shlex
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfplay.errors import UserError
from selfplay.games import NO_TERMS, Minted, Terms, kept_back
from selfplay.games.code import agentic, bugs, decisions, endings, given, hidden, history
from selfplay.games.code.agentic import TreeBug
from selfplay.games.code.bugs import Bug, Problem
from selfplay.games.code.opened import NAME, Opened
from selfplay.games.code.opening import Opening
from selfplay.games.code.staged import Roomed, Staged
from selfplay.games.code.verify import Verifier
from selfplay.games.rewards import ALONE, Beside, PlusMinusOne, ProposerReward, SelfPlaySwe, SolverReward
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.tools import Allowance, Toolbox
from selfplay.tools.harness import HarnessBench
from selfplay.tools.workbench import Workbench
from selfplay.types import Example, Role, Seed, Split, Task, Trajectory, Verdict, draw, task_id

REMOVAL, HISTORY = "removal", history.STRATEGY
MIXED = "removal+history"
"""One of the two, drawn by the seed, so that all proposals of a group are asked alike; without a history the first."""
HELD_OUT = "touches_held_out"
"""The bug changes a function that is held out for examinations."""
TOO_LONG = "weakening_too_long"
"""What the tests lose is too long to be shown to a solver."""
_ISSUES = "issues are for evaluations alone: selfplay eval TARGET --on FILE --issues FILE"
_SHOWN = 40
"""Held-out functions that a proposer is told, those of its module before others; and test files."""


class TreeGame:
    """Implements `Game` and `GivesTools` with artifacts as proposals and differences of work trees as attempts."""

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
        self._room = opening.room.plays
        self._past: history.Past | None = None

    async def seeds(self) -> Sequence[Seed]:
        """Every playable function, as in `CodeGame`.

        Raises:
            UserError, NotReady, SandboxInfraError: as `Opening.opened`.
        """
        return (await self.opened()).seeds

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`package`; what the survey found: `command` (runs the tests), `num_tests`, `test_files` (one a line, those
        that reach the seed's function first); `module` (where to look), `strategy`; what a bug has to reach:
        `min_files`, `min_failing`; `kept`: functions that must stay as they are, one a line, or empty.

        Raises:
            UserError: the strategy needs a history, and the source has none.
        """
        opened = self._opening.surveyed
        return {
            "package": opened.verifier.repository.name,
            "command": _command(opened),
            "num_tests": len(opened.grounds.stable),
            "test_files": "\n".join(_test_files(opened, reaching=seed.payload["tests"])),
            "module": seed.payload["path"],
            "strategy": self._strategy(seed, str(terms.get("strategy") or REMOVAL)),
            "min_files": self.settings.thresholds.min_changed_files,
            "min_failing": self.settings.thresholds.min_failing_tests,
            "kept": "\n".join(_kept(opened, near=seed.payload["path"])),
        }

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`package`, `command`; `specification`: what the tests lost, as a diff that gives it back; `tests`: some
        failing tests and what they say, one a line; `hint`: what was changed, or empty. Of tests that are held back it
        says nothing. `issue`: a text in the place of specification and tests, or empty; evaluations alone have one.

        Raises:
            UserError: a task that may be learnt from has an issue.
        """
        opened = self._opening.surveyed
        issue = str(task.payload.get("issue", ""))
        if issue and task.split == "train":
            raise UserError(f"task {task.id} is told by an issue, and may be learnt from", hint=_ISSUES)
        secret = frozenset(task.payload.get("hidden", ()))
        failing = {test: said for test, said in task.payload["failing"] if test not in secret}
        return {
            "package": opened.verifier.repository.name,
            "command": _command(opened),
            "issue": issue,
            "specification": "" if issue else task.payload["specification"],
            "tests": "" if issue else bugs.shown(failing, limit=self.settings.shown_tests),
            "hint": f"look at {', '.join(task.payload['touched'])}" if terms.get("hint") else "",
        }

    async def toolbox(self, role: Role, subject: Seed | Task) -> Toolbox:
        """The tools of one play: for a seed in stages, from the clean tree with its history, where it has one; for a
        task over the broken tree, in one commit. Waits for room.

        Raises:
            SandboxInfraError: git did not run.
            NotReady: git is not there.
        """
        opened = await self.opened()
        repository = opened.verifier.repository
        await self._room.acquire()
        try:
            cache, provider = self._opening.cache, self._opening.provider
            allowance = Allowance(command_seconds=self.settings.seconds)
            spec_of = functools.partial(_spec, opened.verifier, role=role)
            bench: Toolbox
            if isinstance(subject, Seed):
                tree = await asyncio.to_thread(agentic.handed_to_proposer, repository, cache=cache)
                if self._past is not None and self._past.archive is not None:
                    tree = replace(tree, archive=self._past.archive)
                bench = Staged(
                    repository, first=tree, spec_of=spec_of, provider=provider, allowance=allowance, cache=cache
                )
            else:
                job = agentic.handed_to_solver
                tree = await asyncio.to_thread(job, subject.payload, repository=repository, cache=cache)
                handover, spec = agentic.patch_handover(tree), spec_of(tree.archive)
                if role.tools is not None and role.tools.harness:
                    bench = HarnessBench(provider, spec, handover=handover)
                else:
                    bench = Workbench(provider, spec, allowance=allowance, handover=handover)
        except BaseException:
            self._room.release()
            raise
        return Roomed(bench, self._room)

    def handed_over(self, seed: Seed, *, step: int, index: int, terms: Terms) -> Mapping[str, Any] | None:
        """A mutation of the seed's function for the strategy `procedural`, for which no model is asked."""
        return given.handed_over(seed, step=step, index=index) if terms.get("strategy") == given.STRATEGY else None

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """A task where the artifact, or the mutation, that was handed over passes every check and control."""
        opened = await self.opened()
        if given.MUTATION in proposal.product:
            mutated = self._mutated(str(proposal.product[given.MUTATION]), seed, opened)
            return await self._minted(proposal, mutated, opened=opened, seed=seed, step=proposal.step)
        files = proposal.product.get("files")
        if not isinstance(files, Mapping):
            return Minted(verdict=decisions.refused(proposal, endings.nothing(proposal)), task=None)
        finding = agentic.examine_artifact(files, opened=opened)
        return await self._minted(proposal, finding, opened=opened, seed=seed, step=proposal.step)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """A task where the tree, as the failed attempt left it, is a bug of the second order."""
        opened = await self.opened()
        seed = next(seed for seed in opened.seeds if seed.id == parent.seed_id)
        patch = attempt.product.get("patch")
        if not isinstance(patch, str):
            return Minted(verdict=decisions.refused(attempt, endings.nothing(attempt)), task=None)
        finding = agentic.examine_child(patch, parent.payload, opened=opened)
        return await self._minted(attempt, finding, opened=opened, seed=seed, step=step)

    async def _minted(
        self, origin: Trajectory, finding: Awaitable[TreeBug | Problem], *, opened: Opened, seed: Seed, step: int
    ) -> Minted:
        async def make(bug: TreeBug) -> Task | Problem:
            return await self._task(bug, opened=opened, seed=seed, step=step, parent_id=origin.id, split=seed.split)

        return await decisions.minted(origin, finding, make=make, evidence=_evidence)

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Passed where the tests of the listed files pass as they were before the weakening (`agentic.judge_patch`)."""
        opened = await self.opened()
        patch = attempt.product.get("patch")
        if not isinstance(patch, str):
            return self._failed(attempt, endings.nothing(attempt), {})
        evidence: dict[str, Any] = {"diff": patch}
        try:
            found = await agentic.judge_patch(patch, task.payload, opened=opened)
        except SandboxInfraError as error:
            return decisions.undecided(attempt, "judge", error)
        if isinstance(found, Problem):
            return self._failed(attempt, found, evidence)
        failing = [test for test, _ in task.payload["failing"]]
        worth, path = self._solver_reward, str(task.payload["touched"][0]).partition("::")[0]
        return decisions.decided(attempt, found, failing=failing, path=path, evidence=evidence, worth=worth)

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """As `CodeGame.grade`; None where no model proposed."""
        graded = decisions.graded(proposal, minted, judged, worth=self._proposer_reward, beside=beside)
        return given.unpaid(graded) if given.MUTATION in proposal.product else graded

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """None: nobody wrote down how an agent works."""
        return ()

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """None, as there is no warm-up."""
        return (), ()

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Held-out seeds, and one proved procedural bug in each of up to `count` of them that have one."""
        opened = await self.opened()
        return await given.held_out(kept_back(opened.seeds), count, make=lambda seed: self._given(seed, opened))

    async def given(self, seed: Seed) -> Task | None:
        """A proved procedural bug in the seed's function, of the seed's split."""
        return await self._given(seed, await self.opened(), split=seed.split)

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
        """The repository, surveyed once, and its history fetched; raises what `seeds` raises."""
        opened = await self._opening.opened()
        if self._past is None:
            self._past = await asyncio.to_thread(history.past_of, opened.verifier.repository, cache=self._opening.cache)
        return opened

    def _strategy(self, seed: Seed, asked: str) -> str:
        """The one that the prompt names.

        Raises:
            UserError: it needs a history, and the source has none.
        """
        past = self._past or history.Past(archive=None, why="the repository was not opened")
        if asked == MIXED:
            return (REMOVAL, HISTORY)[draw("strategy", seed.id) % 2] if past.archive is not None else REMOVAL
        if asked == HISTORY and past.archive is None:
            raise UserError(f"strategy `{HISTORY}` needs a git history: {past.why}", hint=history.HINT)
        return asked

    async def _mutated(self, edit: str, seed: Seed, opened: Opened) -> TreeBug | Problem:
        found = await given.mutated(edit, seed, opened)
        return found if isinstance(found, Problem) else await agentic.proved(found.artifact, opened=opened)

    async def _given(self, seed: Seed, opened: Opened, *, split: Split = "held_out") -> Task | None:
        """A task of one of the mutations that the other form would take for its held-out tasks."""

        async def make(bug: Bug) -> Task | Problem:
            found = await agentic.proved(bug.artifact, opened=opened)
            if isinstance(found, Problem):
                return found
            return await self._task(found, opened=opened, seed=seed, step=-1, parent_id=None, split=split)

        return await given.given(seed, opened, make=make)

    async def _task(
        self, bug: TreeBug, *, opened: Opened, seed: Seed, step: int, parent_id: str | None, split: Split
    ) -> Task | Problem:
        """The task of a bug, with its canaries; a problem where it may not be played, or fails a control.

        Raises:
            SandboxInfraError: the machine failed.
        """
        problem = _why_not_played(bug, opened=opened, split=split, room=self.solver.limits.context // 2)
        if problem is not None:
            return problem
        # note: a given task is another task than the same bug proposed in play, or that would be its duplicate.
        key = bug.key if split == "train" else f"{split}:{bug.key}"
        name = task_id(self._config_digest, game=NAME, key=key)
        payload = await agentic.task_payload(bug, opened=opened, key=name, cache=self._opening.cache)
        if isinstance(payload, Problem):
            return payload
        share = self.settings.hidden_share
        told = hidden.held_back(bug, repository=opened.verifier.repository, share=share, key=key)
        payload = {**payload, "specification": told.specification}
        payload |= {"hidden": list(told.hidden)} if told.hidden else {}
        return Task(
            id=name,
            game=NAME,
            seed_id=seed.id,
            key=key,
            payload={**payload, "touched": list(bug.touched)},
            split=split,
            step=step,
            parent_id=parent_id,
        )

    def _failed(self, attempt: Trajectory, problem: Problem, evidence: Mapping[str, Any]) -> Verdict:
        """An attempt that no test had to decide."""
        worth = self._solver_reward
        return decisions.judged(attempt, False, problem.reason, problem.why, evidence, worth=worth, valid=False)


def _spec(verifier: Verifier, archive: Path, *, role: Role) -> SandboxSpec:
    """The sandbox of one play: what tests import is found as the verifier finds it, and it outlives the play."""
    plain = verifier.spec
    roots = [f"{plain.workdir}/{root}" for root in verifier.suite.roots if root]
    # note: a play's seconds leave out its waits for the sampler, which a sandbox lives through.
    return replace(
        plain,
        archive=str(archive),
        env={"PYTHONPATH": ":".join(roots)} if roots else {},
        ttl_seconds=max(plain.ttl_seconds, 10 * role.limits.seconds),
    )


def _command(opened: Opened) -> str:
    return shlex.join(["python", "-m", "pytest", "-q", *opened.verifier.suite.paths])


def _test_files(opened: Opened, *, reaching: Sequence[str]) -> list[str]:
    """Files with stable tests, how many each, those with tests `reaching` something first."""
    counts = Counter(test.partition("::")[0] for test in opened.grounds.stable)
    first = {test.partition("::")[0] for test in reaching}
    names = sorted(counts, key=lambda path: (path not in first, path))
    more = [f"and {len(names) - _SHOWN} more files"] if len(names) > _SHOWN else []
    return [*(f"{path} ({counts[path]} tests)" for path in names[:_SHOWN]), *more]


def _kept(opened: Opened, *, near: str) -> list[str]:
    """Names of held-out functions, those of the file `near` first."""
    names = sorted((seed.payload["path"] != near, _name(seed)) for seed in opened.seeds if seed.split == "held_out")
    return [name for _, name in names[:_SHOWN]]


def _name(seed: Seed) -> str:
    return f"{seed.payload['path']}::{seed.payload['qualname']}"


def _why_not_played(bug: TreeBug, *, opened: Opened, split: Split, room: int) -> Problem | None:
    """`room`: bytes that a solver can be shown of the specification."""
    if split == "train":
        kept = {_name(seed) for seed in opened.seeds if seed.split == "held_out"}
        for name in bug.touched:
            if name in kept:
                why = f"the bug changes {name}, which is kept for examinations"
                return Problem(reason=HELD_OUT, why=why, failing=bug.failing)
    size = len(bug.specification.encode())
    if size > room:
        why = f"the weakening has {size} bytes, and a solver can be shown {room}"
        return Problem(reason=TOO_LONG, why=why, failing=bug.failing)
    return None


def _evidence(bug: TreeBug) -> Mapping[str, Any]:
    return {
        "diff": bug.artifact.bug,
        "failing": [[test, said] for test, said in bug.failing.items()],
        "num_tests": len(bug.tests),
        "num_files": len(bug.code),
        **({"unused": list(bug.artifact.unused)} if bug.artifact.unused else {}),
        **({"num_dead_hunks": len(bug.dropped), "dead_hunks": list(bug.dropped)} if bug.dropped else {}),
    }
