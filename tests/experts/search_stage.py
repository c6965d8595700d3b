"""A run of the search game whose players are scripted: real prompts, searches, checks, verdicts and an update.

Not here: what the players say (`search_players`), how the model is replaced (`stage`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from selfplay.config import Config, load
from selfplay.project import Project
from tests.experts.players import Player
from tests.experts.search_players import reader

SETS = (
    *("run.game=search", "roles.proposer=search_proposer", "roles.solver=search_solver", "run.steps=1"),
    *("curriculum.choose=uniform", "curriculum.options={}", "play.refills=0", "play.min_viable=2", "play.proposals=1"),
    *("learner.token_budget=8192", "learner.dtype=float32", "alarms.stop=[]", "policy.model=toy", "warmup.steps=0"),
)
_NAME = re.compile(r"^I am (\w+)\.$", re.MULTILINE)


@dataclass(slots=True)
class SearchCast:
    """Who plays, and the reader who is asked: each list is gone through as often as it takes."""

    proposers: Mapping[str, Player]
    """For each seed, in order."""
    solvers: Mapping[str, Player]
    """For each task, in order."""
    _next: dict[str, Iterator[str]] = field(default_factory=dict)

    def reply(self, said: str) -> str:
        """What is said next in this conversation."""
        if said.startswith(("Answer the question from", "A question may have more than one right answer")):
            return reader(said)
        named = _NAME.findall(said)
        solves, proposes = "Answer the question below by searching" in said, "You are told the answer first" in said
        if not solves and not proposes:
            return "..."  # the end of a prompt, by which sampler and learner are compared
        players = self.solvers if solves else self.proposers
        if not named:
            named = [next(self._next.setdefault(said, itertools.cycle(players)))]
            return f"I am {named[0]}.\n{players[named[0]](0, said)}"
        return f"I am {named[0]}.\n{players[named[0]](len(named), said)}"


def project(folder: Path, shipped: Project) -> Project:
    """A project with the shipped roles, for a model without a chat template."""
    for name in ("search_proposer", "search_solver"):
        role = folder / "roles" / name
        role.mkdir(parents=True)
        given = shipped.shipped / "roles" / name
        text = (given / "role.toml").read_text()
        assert 'template = "chat"' in text
        (role / "role.toml").write_text(text.replace('template = "chat"', 'template = "plain"'))
        (role / "prompt.md").write_text((given / "prompt.md").read_text())
    return Project(folder=folder, shipped=shipped.shipped, runs=folder / "runs")


def config(at: Project, *sets: str) -> Config:
    """The settings of such a run."""
    return load("demo", project=at, sets=[*SETS, *sets], environ={})
