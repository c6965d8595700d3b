"""A run of several games: what its configuration says of each, and how many seeds of each a step chooses.

`run.game = "code+search"` (or `["code", "search"]`) names the games, `run.shares` how much of a step each has;
`roles.proposer` and `roles.solver` name a role for each game, in the same order. Each game chooses from its own seeds
by its own past, with the configured curriculum. Its roles' losses weigh its share, so that a step of two games has a
loss as large as a step of one; with `roles.weights = "pooled"` a game weighs as many tokens as it trained.

Not here: playing several games (`games.mixed`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from selfplay.config import Config
from selfplay.curriculum import Curriculum, History
from selfplay.curriculum.given import Recorded
from selfplay.curriculum.needs import Needs, needs_of
from selfplay.errors import UserError
from selfplay.games import MIXED
from selfplay.games.mixed import places
from selfplay.ledger.curricula import KnownTask, Proposed
from selfplay.types import Choice, Seed, Task, record


def games_of(config: Config) -> tuple[str, ...]:
    """Names of the games that are played."""
    return tuple(name.strip() for name in config.run.game.split(MIXED))


def shares_of(config: Config) -> tuple[float, ...]:
    """How much of a step each game has; they sum to 1.

    Raises:
        UserError: there are not as many as games, or one of them is nothing.
    """
    names, shares = games_of(config), config.run.shares
    if not shares:
        return (1.0 / len(names),) * len(names)
    if len(shares) != len(names) or min(shares) <= 0.0:
        raise UserError(
            f"run.shares is {list(shares)}, and run.game names {len(names)}: {', '.join(names)}",
            hint="a share above 0 for each game, in its order: -s 'run.shares=[2, 1]'",
        )
    return tuple(share / sum(shares) for share in shares)


def alone(config: Config) -> tuple[Config, ...]:
    """The configuration of each game, as if it were the only one. The digest of the run is that of `config`.

    Raises:
        UserError: a game is named twice, or there are not as many roles of a side as games.
    """
    names = games_of(config)
    if len(set(names)) < len(names):
        raise UserError(f"run.game is `{config.run.game}`: a game is mixed with itself", hint="name each game once")
    if len(names) == 1:
        return (config,)
    sides = {side: getattr(config.roles, side).split(MIXED) for side in ("proposer", "solver")}
    for side, roles in sides.items():
        if len(roles) != len(names):
            raise UserError(
                f"roles.{side} is `{getattr(config.roles, side)}`, and run.game names {len(names)} games: "
                f"{', '.join(names)}",
                hint=f"name one for each, in the same order: -s roles.{side}=A{MIXED}B; roles: selfplay ls roles",
            )
    return tuple(
        config.model_copy(
            update={
                "run": config.run.model_copy(update={"game": name, "shares": ()}),
                "roles": config.roles.model_copy(update={side: roles[i].strip() for side, roles in sides.items()}),
                # note: options are of the game `search`, and no other is to refuse them.
                "game": config.game if name == "search" else config.game.model_copy(update={"options": {}}),
            }
        )
        for i, name in enumerate(names)
    )


@record
class Own:
    """A `History` of one game: what was played of the others is left out, and the weights' movement is everybody's."""

    history: History
    seeds: frozenset[str]
    """Ids of the game's own."""
    others: frozenset[str]
    """Ids of the other games' seeds."""

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        """As the ledger."""
        counts = self.history.played_seeds(before=before)
        return {seed: number for seed, number in counts.items() if seed not in self.others}

    def known_tasks(self, *, since: int, before: int) -> Sequence[KnownTask]:
        """Of its own seeds."""
        found = self.history.known_tasks(since=since, before=before)
        return tuple(task for task in found if task.seed_id in self.seeds)

    def proposals(self, *, since: int, before: int) -> Mapping[str, Proposed]:
        """On its own seeds, and on failed attempts at tasks that are not known to be another's."""
        known = self.history.known_tasks(since=since, before=before)
        strange = self.others | {task.id for task in known if task.seed_id in self.others}
        found = self.history.proposals(since=since, before=before)
        return {subject: one for subject, one in found.items() if subject not in strange}

    def movement(self, *, since: int, before: int) -> Mapping[int, float]:
        """As the ledger."""
        return self.history.movement(since=since, before=before)

    def failed_attempts(self, task_id: str, *, before: int) -> Sequence[str]:
        """As the ledger."""
        return self.history.failed_attempts(task_id, before=before)

    def tasks(self, step: int) -> Sequence[Task]:
        """Of its own seeds."""
        assert isinstance(self.history, Recorded)
        return tuple(task for task in self.history.tasks(step) if task.seed_id in self.seeds)

    def choices(self, step: int) -> Sequence[Choice]:
        """Of its own seeds, and of tasks: whose a task is, `tasks` says."""
        assert isinstance(self.history, Recorded)
        return tuple(choice for choice in self.history.choices(step) if choice.subject_id not in self.others)


@record
class Mixture:
    """A `Curriculum` that gives each game its share of the places of all steps, and lets `choose` fill them."""

    choose: Curriculum
    games: tuple[str, ...]
    shares: tuple[float, ...]

    @property
    def needs(self) -> Needs:
        """What every game must have."""
        return needs_of(self.choose)

    def __call__(
        self,
        history: History,
        seeds: Sequence[Seed],
        *,
        n: int,
        step: int,
        seed: int,
        first: int,
        taken: Collection[str],
        **more: Any,
    ) -> tuple[Choice, ...]:
        """The choices of each game, one game after the other; a round of refills has the shares of its step."""
        turns = places(self.shares, first=step * n, count=n)
        chosen: list[Choice] = []
        for whose, game in enumerate(self.games):
            if not (count := turns.count(whose)):
                continue
            own = [one for one in seeds if one.game == game]
            ids = frozenset(one.id for one in own)
            past = Own(history=history, seeds=ids, others=frozenset(one.id for one in seeds) - ids)
            at = first + len(chosen)
            chosen += self.choose(past, own, n=count, step=step, seed=seed, first=at, taken=taken, **more)
        return tuple(chosen)


def mixture(choose: Curriculum, config: Config) -> Curriculum:
    """`choose` for each game of a mix; itself where there is one."""
    names = games_of(config)
    return choose if len(names) == 1 else Mixture(choose=choose, games=names, shares=shares_of(config))
