"""Several games in one run: each seed and each task belongs to one of them, which plays, decides and grades it.

What is covered: `MixedGame`, which implements `Game` and all that a game may offer beside it, by asking the game that a
seed, a task or a role belongs to; `places`, which says whose turn it is. Games share the weights and the ledger, and
nothing else: each has roles of its own, and groups, cells, baselines and normalisers go by role.

What is not covered: how many seeds of each are chosen in a step (`mix`), what a role's loss weighs (`parts`).

Example:
    >>> places((0.75, 0.25), first=0, count=8)
    (0, 1, 0, 0, 0, 1, 0, 0)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from selfplay.errors import UserError
from selfplay.games import (
    MIXED,
    NO_TERMS,
    AsksPolicy,
    Game,
    GivesTools,
    MakesTasks,
    Minted,
    ProposesAlone,
    Terms,
    kept_back,
)
from selfplay.games.rewards import ALONE, Beside
from selfplay.policy import Policy
from selfplay.tools import Toolbox
from selfplay.types import Example, Role, Seed, Task, Trajectory, Verdict

PERIOD = 1000
"""Places after which `places` begins anew: shares are kept to a thousandth."""


@lru_cache(maxsize=16)
def _round(shares: tuple[float, ...]) -> tuple[int, ...]:
    """Whose each place of a period is: of those furthest behind their share, the first."""
    taken, order = [0] * len(shares), []
    for place in range(PERIOD):
        behind = [share * (place + 0.5) - have for share, have in zip(shares, taken, strict=True)]
        whose = behind.index(max(behind))
        taken[whose] += 1
        order.append(whose)
    return tuple(order)


def places(shares: Sequence[float], *, first: int, count: int) -> tuple[int, ...]:
    """Whose the places `first` to `first + count - 1` are, as positions in `shares`, which sum to 1.

    Among the first n places of a period each has n times its share, to within one of them.
    """
    order = _round(tuple(shares))
    return tuple(order[place % PERIOD] for place in range(first, first + count))


class MixedGame:
    """Implements `Game`, `Mixes`, `GivesTools`, `MakesTasks`, `ProposesAlone` and `AsksPolicy` by other games."""

    def __init__(self, games: Sequence[Game], *, shares: Sequence[float]) -> None:
        """`shares` sum to 1: how often each of `games` has its turn.

        Raises:
            UserError: a role has tools, and its game gives none.
        """
        self.games = tuple(games)
        self._by_name = {game.name: game for game in self.games}
        self._by_role = {role.name: game for game in self.games for role in (game.proposer, game.solver)}
        self._shares = tuple(shares)
        for game in self.games:
            having = [role for role in (game.proposer, game.solver) if role.tools is not None]
            if having and not isinstance(game, GivesTools):
                raise UserError(
                    f"role `{having[0].name}` has tools, and the game `{game.name}` gives none",
                    hint=f"take the table [tools] out of {having[0].origin}/role.toml, or name another role",
                )

    @property
    def name(self) -> str:
        """The names of its games."""
        return MIXED.join(self._by_name)

    @property
    def proposer(self) -> Role:
        """That of the first game; who plays on a seed says `cast`."""
        return self.games[0].proposer

    @property
    def solver(self) -> Role:
        """That of the first game; who plays on a task says `cast`."""
        return self.games[0].solver

    def bind(self, policy: Policy, *, seed: int) -> None:
        """Whoever asks the policy beside its plays asks this one."""
        for game in self.games:
            if isinstance(game, AsksPolicy):
                game.bind(policy, seed=seed)

    async def seeds(self) -> Sequence[Seed]:
        """Those of each game, one after the other.

        Raises:
            UserError: as the games say.
        """
        return [seed for game in self.games for seed in await game.seeds()]

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """As the seed's game says."""
        return self._by_name[seed.game].proposer_view(seed, terms=terms)

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """As the task's game says."""
        return self._by_name[task.game].solver_view(task, terms=terms)

    async def toolbox(self, role: Role, subject: Seed | Task) -> Toolbox:
        """The tools of one play, of the subject's game."""
        game = self._by_name[subject.game]
        assert isinstance(game, GivesTools), "a role with tools in a game without them is refused beforehand"
        return await game.toolbox(role, subject)

    def handed_over(self, seed: Seed, *, step: int, index: int, terms: Terms) -> Mapping[str, Any] | None:
        """As the seed's game says; None where it always asks a model."""
        game = self._by_name[seed.game]
        return game.handed_over(seed, step=step, index=index, terms=terms) if isinstance(game, ProposesAlone) else None

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """Decided by the seed's game."""
        return await self._by_name[seed.game].mint(proposal, seed)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """Decided by the parent's game."""
        return await self._by_name[parent.game].mutate(parent, attempt, step=step)

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Decided by the task's game."""
        return await self._by_name[task.game].judge(attempt, task)

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """By the game whose proposer it is."""
        return self._by_role[proposal.role].grade(proposal, minted, judged, beside=beside)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples of the games that have any, in turns by their shares."""
        able = [
            (game, share)
            for game, share in zip(self.games, self._shares, strict=True)
            if game.examples(seed=seed, first=0, count=1)
        ]
        if not able:
            return ()
        whole = sum(share for _, share in able)
        shares = [share / whole for _, share in able]
        before, mine = (places(shares, first=at, count=n) for at, n in ((0, first), (first, count)))
        had = [before.count(whose) for whose in range(len(able))]
        found: list[Example] = []
        for whose in mine:
            found += able[whose][0].examples(seed=seed, first=had[whose], count=1)
            had[whose] += 1
        return tuple(found)

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The dev sets of all games."""
        each = [await game.dev() for game in self.games]
        return [one for seeds, _ in each for one in seeds], [task for _, tasks in each for task in tasks]

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The first `count` of all held-out seeds, and up to `count` tasks, of each game by its share."""
        turns = places(self._shares, first=0, count=count)
        tasks: list[Task] = []
        for whose, game in enumerate(self.games):
            if number := turns.count(whose):
                tasks += (await game.held_out(number))[1]
        return kept_back(await self.seeds())[:count], tuple(tasks)

    async def given(self, seed: Seed) -> Task | None:
        """As the seed's game says; None where it makes no task without a proposer."""
        game = self._by_name[seed.game]
        return await game.given(seed) if isinstance(game, MakesTasks) else None

    async def aclose(self) -> None:
        """Close each game, whatever the others do."""
        await asyncio.gather(*(game.aclose() for game in self.games))
