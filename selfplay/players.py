"""The two roles of each game that a run plays: read by name, and refused where they cannot play with each other.

Not here: reading one role (`project`), the other parts (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.games import MIXED, Cast
from selfplay.mix import alone
from selfplay.project import Project
from selfplay.types import Role, Side, record


@record
class Players:
    """The two roles of a run; in a mix of games those of the first, and the others behind them."""

    proposer: Role
    solver: Role
    others: tuple[Players, ...] = ()
    """The roles of the other games of a mix."""

    @property
    def pairs(self) -> tuple[Players, ...]:
        """The roles of each game."""
        return (replace(self, others=()), *self.others)

    @property
    def everybody(self) -> tuple[Role, ...]:
        """Every role, of all games."""
        return tuple(role for pair in self.pairs for role in (pair.proposer, pair.solver))

    @property
    def game(self) -> str:
        """What they play."""
        return MIXED.join(pair.solver.game for pair in self.pairs)

    @property
    def temperature(self) -> float:
        """Both sample at it."""
        return self.proposer.sampling.temperature

    @property
    def horizon(self) -> int:
        """Most sampled tokens of one play of either: what the loss `dr_grpo` divides by."""
        return max(map(_sampled, self.everybody))

    @property
    def tools(self) -> bool:
        """Both have tools; where one has, the other has too."""
        return self.proposer.tools is not None

    def trained(self, sides: Sequence[str]) -> tuple[str, ...]:
        """Names of the roles that learn."""
        return tuple(role.name for role in self.everybody if role.side in sides)

    def cast(self, side: Side) -> Cast:
        """Who plays that side of each game."""
        return Cast(roles={role.game: role for role in self.everybody if role.side == side})

    def at(self, temperature: float) -> Players:
        """The same, sampling at `temperature`."""
        proposer, solver = _at(self.proposer, temperature), _at(self.solver, temperature)
        return Players(proposer=proposer, solver=solver, others=tuple(one.at(temperature) for one in self.others))


def _sampled(role: Role) -> int:
    """Tokens that a play of it may sample."""
    return role.sampling.max_tokens if role.tools is None else role.limits.output


def roles(config: Config, project: Project) -> Players:
    """Proposer and solver, of each game.

    Raises:
        NotFound: there is no such role.
        UserError: a role belongs to another game or side, cannot do what the game asks for, or two sample at
            different temperatures.
    """
    first, *others = (_pair(one, project) for one in alone(config))
    players = replace(first, others=tuple(others))
    if config.play.temperature is not None:
        players = players.at(config.play.temperature)
    for role in players.everybody:
        if role.sampling.temperature != players.temperature:
            raise UserError(
                f"roles `{players.proposer.name}` and `{role.name}` differ in temperature, and one learner serves both",
                hint="set one for both: -s play.temperature=1.0",
            )
    return players


def _pair(config: Config, project: Project) -> Players:
    pair = (project.load_role(config.roles.proposer), project.load_role(config.roles.solver))
    for role, side in zip(pair, ("proposer", "solver"), strict=True):
        if role.game != config.run.game or role.side != side:
            raise UserError(
                f"role `{role.name}` is the {role.side} of game `{role.game}`, not the {side} of `{config.run.game}`",
                hint=f"roles of each game: selfplay ls roles; set roles.{side}",
            )
    _refuse_unlike(config, pair)
    _refuse_harness(config, pair)
    if config.run.game == "code" and config.game.min_changed_files > 1 and pair[0].tools is None:
        raise UserError(
            f"game.min_changed_files is {config.game.min_changed_files}, and role `{pair[0].name}` edits one file",
            hint="ask for what a single edit can do: -s game.min_changed_files=1",
        )
    if config.run.game == "code" and config.game.hidden_share and pair[1].tools is None:
        raise UserError(
            f"game.hidden_share is {config.game.hidden_share:g}, and role `{pair[1].name}` is shown a function instead "
            "of its tests",
            hint="hold tests back from a solver with tools: selfplay run code-agent -s game.hidden_share=0.3",
        )
    return Players(proposer=pair[0], solver=pair[1])


def _refuse_unlike(config: Config, pair: tuple[Role, Role]) -> None:
    """Both roles of a game have tools, or neither has; nothing warms up those that have."""
    proposer, solver = pair
    if config.run.game not in _UNLIKE:
        return
    if (proposer.tools is None) != (solver.tools is None):
        has, lacks = pair if proposer.tools is not None else (solver, proposer)
        why, with_tools, without = _UNLIKE[config.run.game]
        raise UserError(
            f"role `{has.name}` has tools and role `{lacks.name}` has none: {why}",
            hint=f"name two of one kind: -s roles.proposer={with_tools[0]} -s roles.solver={with_tools[1]}, "
            f"or {without}",
        )
    if proposer.tools is not None and config.warmup.steps:
        raise UserError(
            f"warmup.steps is {config.warmup.steps}, and there are no warm-up examples for roles with tools "
            f"(`{proposer.name}`, `{solver.name}`)",
            hint="start with a model that uses tools already: -s warmup.steps=0",
        )


def _refuse_harness(config: Config, pair: tuple[Role, Role]) -> None:
    """A harness solves, in games of one's own or in `code`."""
    for role in pair:
        if role.tools is None or not role.tools.harness:
            continue
        if role.side == "proposer" or config.run.game in ("search", "echo"):
            raise UserError(
                f"role `{role.name}` is played by a harness, which can be the solver of the game `code` alone",
                hint=f"take `harness` out of {role.origin}/role.toml",
            )


_UNLIKE = {
    "code": (
        "one breaks or repairs a whole repository, the other one function",
        ("tree_injector", "tree_repairer"),
        "injector and repairer",
    ),
    "search": (
        "one searches for itself, the other is given what was found",
        ("search_proposer", "search_solver"),
        "search_proposer_short and search_solver_short",
    ),
}
"""Why the roles of a game are of one kind, and which there are."""


def _at(role: Role, temperature: float) -> Role:
    return replace(role, sampling=replace(role.sampling, temperature=temperature))
