"""Several repositories in one run of the code game: each seed and each task belongs to one of them.

What is covered: `Repositories`, which implements `Game` and all that the two forms offer beside it, by asking the game
of the repository that a seed or a task comes from. They share roles, weights, ledger and room on the machine; each has
a survey, an environment and sandboxes of its own. Warm-up examples are drawn as from one repository with the functions
of all. With `distinct` no held-out function has a near-copy among the train functions of any of them.

What is not covered: which repositories (`grounds.sources_of`), how often each is played (the curriculum, by its seeds).

Example:
    >>> game = Repositories([CodeGame(opening=Opening("pypi:toolz==1.2.0", ...), ...), ...])  # doctest: +SKIP
    >>> {seed.source.partition(":")[0] for seed in await game.seeds()}  # doctest: +SKIP
    {'pypi'}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from selfplay.errors import UserError
from selfplay.games import NO_TERMS, GivesTools, Minted, ProposesAlone, Terms, kept_back
from selfplay.games.code import alike
from selfplay.games.code.game import CodeGame
from selfplay.games.code.given import held_out
from selfplay.games.code.opened import NAME, Opened
from selfplay.games.code.tree_game import TreeGame
from selfplay.games.rewards import ALONE, Beside
from selfplay.tools import Toolbox
from selfplay.types import Example, Role, Seed, Task, Trajectory, Verdict, draw

OneGame = CodeGame | TreeGame


class Repositories:
    """Implements `Game`, `GivesTools`, `MakesTasks` and `ProposesAlone` by a code game for each repository."""

    name = NAME

    def __init__(self, games: Sequence[OneGame], *, rehearsed: int = 0) -> None:
        """`games` are of one form, with the same roles and settings; `rehearsed`: `Settings.rehearsed`, of all."""
        self.games = tuple(games)
        self.proposer, self.solver = self.games[0].proposer, self.games[0].solver
        self._rehearsed = rehearsed
        self._by_seed: dict[str, OneGame] = {}
        self._seeds: tuple[Seed, ...] = ()
        self._open = asyncio.Lock()

    async def seeds(self) -> Sequence[Seed]:
        """Those of each repository, one after the other.

        Raises:
            UserError: two folders of one name have a function that is the same.
            UserError, NotReady, SandboxInfraError: as `CodeGame.seeds`, of any of them.
        """
        async with self._open:
            if not self._seeds:
                # note: one after the other, since each survey has the machine to itself.
                opened = [await game.opened() for game in self.games]
                _set_apart(opened)
                for game, one in zip(self.games, opened, strict=True):
                    if twice := next((seed for seed in one.seeds if seed.id in self._by_seed), None):
                        raise UserError(
                            f"`{twice.source}` is a function of another repository too: a folder is known by its name",
                            hint="rename one of the two folders",
                        )
                    self._by_seed |= dict.fromkeys((seed.id for seed in one.seeds), game)
                for whose, (game, one) in enumerate(zip(self.games, opened, strict=True)):
                    mine = [at for at in range(self._rehearsed) if self._turn(opened, at) == whose]
                    await one.rehearse(cache=game.cache, indices=mine)
                self._seeds = tuple(_named(seed, one) for one in opened for seed in one.seeds)
        return self._seeds

    def of(self, subject: Seed | Task) -> OneGame:
        """The game of the repository that it comes from; `seeds` must have been awaited."""
        return self._by_seed[subject.id if isinstance(subject, Seed) else subject.seed_id]

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """As in its repository."""
        return self.of(seed).proposer_view(seed, terms=terms)

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """As in its repository."""
        return self.of(task).solver_view(task, terms=terms)

    async def toolbox(self, role: Role, subject: Seed | Task) -> Toolbox:
        """The tools of one play, in the subject's repository."""
        game = self.of(subject)
        assert isinstance(game, GivesTools), "roles with tools play the other form"
        return await game.toolbox(role, subject)

    def handed_over(self, seed: Seed, *, step: int, index: int, terms: Terms) -> Mapping[str, Any] | None:
        """As in its repository; None in the form without tools, which always asks a model."""
        game = self.of(seed)
        return game.handed_over(seed, step=step, index=index, terms=terms) if isinstance(game, ProposesAlone) else None

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """Decided in the seed's repository."""
        return await self.of(seed).mint(proposal, seed)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """Decided in the parent's repository."""
        return await self.of(parent).mutate(parent, attempt, step=step)

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Decided in the task's repository."""
        await self.seeds()
        return await self.of(task).judge(attempt, task)

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """The same in all of them."""
        return self.games[0].grade(proposal, minted, judged, beside=beside)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples, each of a repository drawn by how many functions it has for them; `seeds` comes first."""
        opened = [game.surveyed for game in self.games]
        found: list[Example] = []
        for at in range(first, first + count):
            found += self.games[self._turn(opened, at)].examples(seed=seed, first=at, count=1)
        return tuple(found)

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The dev sets of all."""
        await self.seeds()
        each = [await game.dev() for game in self.games]
        return [one for seeds, _ in each for one in seeds], [task for _, tasks in each for task in tasks]

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The first `count` of all held-out seeds, and a task in each of up to `count` that have one."""
        return await held_out(kept_back(await self.seeds()), count, make=self.given)

    async def given(self, seed: Seed) -> Task | None:
        """As in its repository."""
        return await self.of(seed).given(seed)

    async def aclose(self) -> None:
        """Close each, whatever the others do."""
        await asyncio.gather(*(game.aclose() for game in self.games))

    def _turn(self, opened: Sequence[Opened], index: int) -> int:
        """Whose warm-up example number `index` is."""
        ends = list(accumulate(max(1, one.num_lessons) for one in opened))
        place = draw("repository", index) % ends[-1]
        return next(whose for whose, end in enumerate(ends) if place < end)


def _named(seed: Seed, opened: Opened) -> Seed:
    """With its repository's name, since two of them may have files of one path."""
    return replace(seed, payload={**seed.payload, "repository": opened.verifier.repository.name})


def _set_apart(opened: Sequence[Opened]) -> None:
    """Where that is asked, let no held-out function have a near-copy among another repository's train functions."""
    if not opened[0].distinct:
        return
    known = {alike.key(s.payload["source"]) for one in opened for s in one.seeds if s.split == "train"}
    for one in opened:
        one.release(known)
