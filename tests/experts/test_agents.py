"""A step of the code game with tools from end to end: experts plant and mend a bug, everybody else is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from selfplay.build import execute
from selfplay.cache import cache_folder
from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.events import Interrupt, ignore
from selfplay.games.code.source import fetch
from selfplay.ledger import Ledger
from selfplay.plan import plan
from selfplay.project import Project
from tests.experts.players import PROPOSERS, SOLVERS, proposer, solver
from tests.experts.stage import Cast, scripted
from tests.experts.stage import project as staged

SOURCE = "pypi:toolz==1.2.0"
SETS = (
    *(f"game.source={SOURCE}", "policy.model=toy", "sandbox.kind=bubblewrap", "sandbox.timeout_seconds=60"),
    *("run.steps=1", "curriculum.seeds=1", "play.refills=0", "play.min_viable=2", "learner.token_budget=4096"),
    *("curriculum.choose=uniform", "curriculum.options={}", "learner.dtype=float32", "alarms.stop=[]"),
)


def config(at: Project, *sets: str) -> Config:
    return load("code-agent", project=at, sets=[*SETS, *sets], environ={})


def test_the_preset_is_planned(project: Project) -> None:
    rows = {(row.section, row.name): row.value for row in plan(load("code-agent", project=project), project)}
    assert "64 turns with tools" in rows["roles", "proposer"]
    assert "removal,direct" not in rows["play", "steps"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["roles.solver=repairer"], "role `tree_injector` has tools and role `repairer` has none"),
        (["roles.proposer=injector"], "role `tree_repairer` has tools and role `injector` has none"),
        (["warmup.steps=1"], "no warm-up examples for roles with tools"),
        (["curriculum.options={strategies='history'}"], "strategy `history`, which game `code` does not have"),
    ],
)
def test_what_cannot_be_played_is_refused_by_the_plan(project: Project, sets: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan(load("code-agent", project=project, sets=sets, environ={}), project)


def test_ways_to_propose_are_those_of_tools(project: Project) -> None:
    sets = ["curriculum.choose=ssr", "curriculum.options={strategies='removal'}", "warmup.steps=0"]
    with pytest.raises(UserError, match="strategy `removal`, which game `code` does not have"):
        plan(load("quickstart", project=project, sets=sets, environ={}), project)


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_experts_play_and_all_others_are_refused(tmp_path: Path, project: Project) -> None:
    clean = asyncio.run(asyncio.to_thread(fetch, SOURCE, cache=cache_folder())).root
    at = staged(tmp_path, project, seconds=150.0)
    cast = Cast(
        proposers={"expert": proposer(3), **{name: player for name, (player, _) in PROPOSERS.items()}},
        solvers={"expert": solver(clean), **{name: player for name, (player, _) in SOLVERS.items()}},
    )
    sets = (f"play.proposals={len(cast.proposers)}", f"play.attempts={len(cast.solvers)}")
    with scripted(cast):
        folder = tmp_path / "runs" / "agents"
        outcome = execute(config(at, *sets), project=at, folder=folder, observe=ignore, interrupt=Interrupt())
    assert outcome.stop == "done"
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        reasons = {**{name: reason for name, (_, reason) in PROPOSERS.items()}, "expert": "valid"}
        minted = ledger.verdicts(0, "propose", "mint")
        proposals = {_who(t.turns[1].text): (t, minted[t.id]) for t in ledger.trajectories(0, "propose")}
        assert {name: verdict.reason for name, (_, verdict) in proposals.items()} == reasons
        stops = {name: str(played.stop) for name, (played, _) in proposals.items()}
        assert (stops["silent"], stops["unclosed"], stops["looper"]) == ("malformed", "malformed", "turns")
        assert stops["expert"] == "done"
        [task] = ledger.tasks(0)
        assert task.payload["touched"]
        judged = ledger.verdicts(0, "attempt", "judge")
        attempts = {_who(t.turns[1].text): judged[t.id] for t in ledger.trajectories(0, "attempt")}
        reasons = {**{name: reason for name, (_, reason) in SOLVERS.items()}, "expert": "passed"}
        assert {name: verdict.reason for name, verdict in attempts.items()} == reasons
        assert attempts["expert"].reward == 1.0
        update = ledger.update(0)
        assert update is not None
        assert update.skipped is None


def _who(reply: str) -> str:
    return reply.split(".")[0].removeprefix("I am ")
