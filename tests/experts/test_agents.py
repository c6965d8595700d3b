"""A step of the code game with tools from end to end: experts plant and mend a bug, everybody else is refused.

What is covered: what becomes of each who does wrong, that the run goes on and leaves no sandbox, and what reads such a
ledger: `reverify --tasks`, `export`, `status`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from selfplay.build import execute
from selfplay.cache import cache_folder
from selfplay.cli import main
from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.events import Interrupt, ignore
from selfplay.games.code.source import fetch
from selfplay.games.code.swebench import Packed
from selfplay.ledger import Ledger
from selfplay.plan import plan
from selfplay.project import Project
from selfplay.types import Trajectory, Verdict
from tests.backends import needed
from tests.experts.export import COLUMNS, wrong_rows
from tests.experts.players import ENDLESS, PROPOSERS, SOLVERS, Wrong, in_stages, proposer, solver
from tests.experts.stage import Cast, left_by_us, scripted
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
        (["curriculum.options={strategies='history'}"], "strategy `history` needs a git history"),
        (["curriculum.options={strategies='magic'}"], "strategy `magic`, which game `code` does not have"),
    ],
)
def test_what_cannot_be_played_is_refused_by_the_plan(project: Project, sets: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan(load("code-agent", project=project, sets=sets, environ={}), project)


def test_ways_to_propose_are_those_of_tools(project: Project) -> None:
    sets = ["curriculum.choose=ssr", "curriculum.options={strategies='removal'}", "warmup.steps=0"]
    with pytest.raises(UserError, match="strategy `removal`, which game `code` does not have"):
        plan(load("quickstart", project=project, sets=sets, environ={}), project)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Path:
    """The folder of a run of one step with all of them, in a project of its own."""
    needed("bubblewrap")
    folder = tmp_path_factory.mktemp("agents")
    clean = asyncio.run(asyncio.to_thread(fetch, SOURCE, cache=cache_folder())).root
    at = staged(folder, project, seconds=150.0)
    cast = Cast(
        proposers={
            "expert": proposer(3),
            "stager": in_stages(9),
            **{name: one.player for name, one in PROPOSERS.items()},
        },
        solvers={"expert": solver(clean), **{name: one.player for name, one in SOLVERS.items()}},
    )
    sets = (f"play.proposals={len(cast.proposers)}", f"play.attempts={len(cast.solvers)}")
    before = left_by_us("bubblewrap")
    with scripted(cast):
        at_run = folder / "runs" / "agents"
        outcome = execute(config(at, *sets), project=at, folder=at_run, observe=ignore, interrupt=Interrupt())
    assert outcome.stop == "done"
    assert left_by_us("bubblewrap") <= before
    return at_run


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_experts_play_and_all_others_are_refused(played: Path) -> None:
    with Ledger.read(played) as ledger:
        assert ledger.check() == ()
        minted = ledger.verdicts(0, "propose", "mint")
        experts = dict.fromkeys(("expert", "stager"), ("valid", "done"))
        assert told(ledger.trajectories(0, "propose"), minted) == experts | named(PROPOSERS)
        assert all(verdict.seconds > 0 for verdict in minted.values() if verdict.valid)
        tasks = ledger.tasks(0)
        assert len(tasks) == len(experts)
        judged = ledger.verdicts(0, "attempt", "judge")
        for task in tasks:
            plays = [attempt for attempt in ledger.trajectories(0, "attempt") if attempt.subject_id == task.id]
            assert told(plays, judged) == {"expert": ("passed", "done")} | named(SOLVERS)
        assert sum(verdict.reward == 1.0 for verdict in judged.values()) == len(tasks)
        whys = {_who(play): minted[play.id].why for play in ledger.trajectories(0, "propose")}
        assert "more than 1048576 bytes" in whys["giant"]
        assert "the code is as it was; left out: notes.txt" in whys["untouched"]
        assert "the tests are as they were" in whys["unweakened"]
        update = ledger.update(0)
        assert update is not None
        assert update.skipped is None


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_its_bugs_hold_and_its_tasks_are_rows(played: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--project", str(played.parents[1]))
    assert main(["reverify", str(played), "--tasks", "--sandbox", "bubblewrap", *here]) == 0
    assert "2 tasks judged again: 0 changed, 2 still bugs" in capsys.readouterr().err
    to = tmp_path / "rows.jsonl"
    assert main(["export", str(played), "--format", "swebench", "--to", str(to), *here]) == 0
    rows = [json.loads(line) for line in to.read_text().splitlines()]
    with Ledger.read(played) as ledger:
        tasks = ledger.tasks(0)
    assert {row["task_id"] for row in rows} == {task.id for task in tasks}
    assert all(isinstance(row[name], str) for row in rows for name in COLUMNS)
    packed = Packed(
        repository=fetch(SOURCE, cache=cache_folder()), requirements=("pytest",), created_at="2026-01-01T00:00:00Z"
    )
    assert wrong_rows(tasks, packed=packed) == (2, ())


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_what_a_task_cost_is_shown(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--project", str(played.parents[1]))
    # note: the exit code is that of a run with alarms, which one of so many failures has.
    main(["status", str(played), "--json", *here])
    price = json.loads(capsys.readouterr().out)["data"]["cost_per_task"]
    with Ledger.read(played) as ledger:
        plays = [*ledger.trajectories(0, "propose"), *ledger.trajectories(0, "attempt")]
    calls = [call for play in plays for turn in play.turns for call in turn.calls]
    assert price["calls"] == len(calls) / 2
    assert price["replies"] == sum(turn.sampled for play in plays for turn in play.turns) / 2
    assert price["tokens"] == sum(play.num_sampled for play in plays) / 2
    assert price["tool_seconds"] == pytest.approx(sum(call.seconds for call in calls) / 2)
    assert price["deciding_seconds"] > 0
    assert price["sandbox_seconds"] == pytest.approx(price["tool_seconds"] + price["deciding_seconds"])
    main(["status", str(played), *here])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"an accepted task: {price['replies']:.1f} replies" in shown
    assert "in sandboxes" in shown


@pytest.mark.slow
@pytest.mark.bubblewrap
@pytest.mark.parametrize("side", ["proposer", "solver"])
def test_time_runs_out_and_the_run_goes_on(side: str, tmp_path: Path, project: Project) -> None:
    needed("bubblewrap")
    late, proposes = ENDLESS[side], side == "proposer"
    at = staged(tmp_path, project, seconds=6.0 if proposes else 150.0, mend_seconds=6.0)
    folder = tmp_path / "runs" / "endless"
    cast = Cast(proposers={"late": late.player} if proposes else {"expert": proposer(3)}, solvers={"late": late.player})
    before = left_by_us("bubblewrap")
    with scripted(cast):
        made = config(at, "play.proposals=1", "play.attempts=1", "play.min_viable=1")
        outcome = execute(made, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
    assert outcome.stop == "done"
    assert left_by_us("bubblewrap") <= before
    with Ledger.read(folder) as ledger:
        minted, judged = ledger.verdicts(0, "propose", "mint"), ledger.verdicts(0, "attempt", "judge")
        found = told(ledger.trajectories(0, "propose"), minted) | told(ledger.trajectories(0, "attempt"), judged)
    expert = {} if proposes else {"expert": ("valid", "done")}
    assert found == expert | {"late": (late.reason, late.stop)}


def named(wrong: Mapping[str, Wrong]) -> dict[str, tuple[str, str]]:
    """Who does wrong -> reason and stop."""
    return {name: (one.reason, one.stop) for name, one in wrong.items()}


def told(plays: Sequence[Trajectory], verdicts: Mapping[str, Verdict]) -> dict[str, tuple[str, str]]:
    """The same as the ledger has it."""
    return {_who(play): (verdicts[play.id].reason, str(play.stop)) for play in plays}


def _who(play: Trajectory) -> str:
    return play.turns[1].text.split(".")[0].removeprefix("I am ")
