"""What is played: `code`, `search`, `echo`, or several (`mixed`). A game is the only code with domain knowledge.

A game turns seeds into what the proposer sees, proposals into tasks (`mint`), tasks into what the
solver sees, attempts into verdicts (`judge`), failed attempts into children (`mutate`), and a task's
verdicts into the proposal's worth (`grade`). It is pure but for the sandbox it verifies in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from selfplay.games.rewards import ALONE, Beside
from selfplay.policy import Policy
from selfplay.tools import Toolbox
from selfplay.types import Example, Fault, Role, Seed, Side, Task, Trajectory, Verdict, VerdictStage, draw, record


@record
class Minted:
    """What became of a proposal or of a failed attempt: a verdict (stage `mint`) and, where it is valid, the task."""

    verdict: Verdict
    task: Task | None


@record
class Abilities:
    """What a game can be asked: a curriculum that asks for more is refused."""

    modes: tuple[str, ...] = ("propose", "replay")
    """New tasks from a seed, known tasks again; `mutate`: children of known tasks."""
    strategies: tuple[str, ...] = ()
    """Names of ways to propose, beside its own."""
    terms: tuple[str, ...] = ()
    """What else a choice may say: `hint`, `turns`."""


MODES = ("propose", "replay", "mutate")
"""All modes that a choice may have."""
CODE_STRATEGIES = ("direct", "removal", "history", "removal+history", "feature", "procedural")
"""Ways to break a repository, for a proposer with tools (`code.tree_game`); for the last no model is asked."""
ABILITIES: Mapping[str, Abilities] = {
    "code": Abilities(modes=MODES, strategies=CODE_STRATEGIES, terms=("hint",)),
    "echo": Abilities(modes=MODES, terms=("hint",)),
    "search": Abilities(terms=("hint",)),
}
"""Game -> what it can be asked, in whichever form it is played (`abilities_of`)."""


def abilities_of(game: str, *, tools: bool) -> Abilities:
    """What a game can be asked by roles with tools, or without: only with them has it ways to propose by name.

    A mix of games (`echo+search`) can be asked what each of them can.
    """
    first, *others = (ABILITIES.get(name, Abilities()) for name in game.split(MIXED))
    can = Abilities(
        modes=tuple(one for one in first.modes if all(one in other.modes for other in others)),
        strategies=tuple(one for one in first.strategies if all(one in other.strategies for other in others)),
        terms=tuple(one for one in first.terms if all(one in other.terms for other in others)),
    )
    return can if tools else replace(can, strategies=())


MIXED = "+"
"""Stands between the names of the games that a run mixes, and between those of their roles."""


@record
class Cast:
    """Who plays one side of each game of a run."""

    roles: Mapping[str, Role]
    """Name of a game -> its role; the first one is who plays where the game is not named."""

    def of(self, subject: Seed | Task) -> Role:
        """Who plays on it."""
        return self.roles.get(subject.game) or next(iter(self.roles.values()))


def undecided(trajectory: Trajectory, fault: Fault, *, stage: VerdictStage, why: str) -> Verdict:
    """No decision, and no reward: the machine failed, not the player."""
    return Verdict(
        trajectory_id=trajectory.id,
        stage=stage,
        valid=False,
        passed=None,
        reward=None,
        reason="fault",
        why=why,
        fault=fault,
    )


Terms = Mapping[str, Any]
"""What a choice asks beside its subject (`curriculum` lists them); a game heeds those that `ABILITIES` names."""
NO_TERMS: Terms = MappingProxyType({})


@runtime_checkable
class GivesTools(Protocol):
    """A game whose roles may have tools (`[tools]` in role.toml)."""

    async def toolbox(self, role: Role, subject: Seed | Task) -> Toolbox:
        """The tools of one play of `role` on `subject`, made clean; its owner closes it. Waits where the machine has no
        room for one more.

        Raises:
            SandboxInfraError: they could not be made.
        """
        ...


@runtime_checkable
class MakesTasks(Protocol):
    """A game that can make a task of a seed without a proposer."""

    async def given(self, seed: Seed) -> Task | None:
        """A task of step -1 that no model proposed, of the seed's split; None where the seed has none. Equal seeds give
        equal tasks.

        Raises:
            SandboxInfraError: the machine failed.
        """
        ...


@runtime_checkable
class ProposesAlone(Protocol):
    """A game that has strategies for which no model is asked."""

    def handed_over(self, seed: Seed, *, step: int, index: int, terms: Terms) -> Mapping[str, Any] | None:
        """What proposal `index` of a step hands over (`Trajectory.product`), as a pure function of the arguments; None
        where the terms ask for a model. Nobody is paid for such a proposal, and nothing is learnt from it.
        """
        ...


@runtime_checkable
class AsksPolicy(Protocol):
    """A game whose checks ask the policy itself, beside its plays."""

    def bind(self, policy: Policy, *, seed: int) -> None:
        """From now on `policy` is asked, under the run's seed."""
        ...


@runtime_checkable
class Mixes(Protocol):
    """A game that is several games, each with roles of its own (`mixed`)."""

    @property
    def games(self) -> tuple[Game, ...]:
        """Those games, in their order."""
        ...


class Game(Protocol):
    """Two roles and the rules between them."""

    @property
    def name(self) -> str: ...

    @property
    def proposer(self) -> Role: ...

    @property
    def solver(self) -> Role: ...

    async def seeds(self) -> Sequence[Seed]:
        """Every seed, train and held-out, in a fixed order; cached by digest where it costs time.

        Raises:
            UserError: the source cannot be played (no tests, failing suite, no such package).
        """
        ...

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """The variables of the proposer's prompt."""
        ...

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """The variables of the solver's prompt; with the term `hint` the variable `hint` helps, else it is empty."""
        ...

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """Is the proposal a task? Decided by the game's checks; a fault decides nothing (reward None)."""
        ...

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """Is what a failed attempt on `parent` left behind a task of `step`, a child of the attempt? Decided by the
        checks of `mint`, without a model call, and refused where nothing new came of it. The verdict, of stage `mint`,
        has no reward.
        """
        ...

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Is the attempt right? Decided by the verifier; a fault decides nothing (reward None)."""
        ...

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """What the proposal is worth, from its mint verdict, its task's first solver group and what stands `beside`."""
        ...

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples `first` to `first + count - 1`: a pure function of its arguments, train seeds only."""
        ...

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The warm-up's dev set: seeds to propose from, tasks to solve, never trained on; empty where there is none."""
        ...

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """What an evaluation plays: the first `count` held-out seeds (`kept_back`), and up to `count` tasks of such
        seeds, each made without a model; of step -1, never trained on. Equal arguments give equal tasks.
        """
        ...

    async def aclose(self) -> None:
        """Free sandboxes and files; idempotent."""
        ...


def kept_back(seeds: Sequence[Seed]) -> tuple[Seed, ...]:
    """The held-out seeds, in the order of a draw keyed by their ids: any first few of them are a fair sample."""
    return tuple(sorted((s for s in seeds if s.split == "held_out"), key=lambda s: draw("held_out", s.id)))


def cast(game: Game, side: Side) -> Cast:
    """Who plays `side` of it."""
    games = game.games if isinstance(game, Mixes) else (game,)
    return Cast(roles={one.name: one.proposer if side == "proposer" else one.solver for one in games})
