"""Bugs that no model proposed, from end to end; and the same told by issues, which only an evaluation may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.build import execute
from selfplay.cli import main
from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.events import Interrupt, ignore
from selfplay.games import ProposesAlone
from selfplay.games.code import given
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.seat import Seat
from tests.backends import needed
from tests.experts.players import Player, called
from tests.experts.stage import Cast, left_by_us, scripted
from tests.experts.stage import project as staged
from tests.games.code.conftest import write
from tests.games.code.test_agentic import FILES

CODE = {path: text for path, text in FILES.items() if path.startswith("pkg/") and text}
ISSUE = "Numbers come out wrong since the last release."


def config(at: Project, source: Path) -> Config:
    sets = (
        *(f"game.source={source}", "policy.model=toy", "sandbox.kind=bubblewrap", "sandbox.timeout_seconds=60"),
        *("run.steps=1", "curriculum.seeds=2", "play.refills=0", "play.min_viable=1", "learner.token_budget=4096"),
        *("curriculum.choose=ssr", "curriculum.options={strategies='procedural', second=0}", "learner.dtype=float32"),
        *("play.proposals=3", "play.attempts=2", "alarms.stop=[]", "game.held_out=0.2"),
    )
    return load("code-agent", project=at, sets=sets, environ={})


def mender(turn: int, said: str) -> str:
    """Writes every file as it was."""
    if turn == 0:
        return "\n".join(called("create", path=path, text=text, overwrite=True) for path, text in CODE.items())
    return called("submit")


def idler(turn: int, said: str) -> str:
    """Hands over what it was given."""
    return called("submit")


SOLVERS: Mapping[str, Player] = {"mender": mender, "idler": idler}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Path:
    """The folder of a run of one step on the small package; only the probe of the weights asks as a proposer."""
    needed("bubblewrap")
    folder = tmp_path_factory.mktemp("alone")
    source = write(folder / "pkg-1", FILES)
    at = staged(folder, project, seconds=150.0)
    before = left_by_us("bubblewrap")
    with scripted(Cast(proposers={"nobody": lambda turn, said: "..."}, solvers=SOLVERS)):
        run = folder / "runs" / "alone"
        for _ in range(2):
            # note: the second time nothing is owed.
            made = config(at, source)
            outcome = execute(made, project=at, folder=run, observe=ignore, interrupt=Interrupt())
            assert outcome.stop == "done"
    assert left_by_us("bubblewrap") <= before
    return run


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_mutations_become_tasks_and_nobody_is_asked_or_paid(played: Path) -> None:
    with Ledger.read(played) as ledger:
        assert ledger.check() == ()
        proposals = ledger.trajectories(0, "propose")
        assert len(proposals) == 6
        assert all(play.turns == () and given.MUTATION in play.product for play in proposals)
        minted, graded = ledger.verdicts(0, "propose", "mint"), ledger.verdicts(0, "propose", "grade")
        tasks = ledger.tasks(0)
        assert tasks, [verdict.why for verdict in minted.values()]
        assert {task.parent_id for task in tasks} <= {play.id for play in proposals}
        assert {verdict.reward for verdict in graded.values()} == {None}
        assert {graded[name].reason for name, verdict in minted.items() if verdict.valid} == {given.UNPAID}
        judged = ledger.verdicts(0, "attempt", "judge")
        attempts = ledger.trajectories(0, "attempt")
        assert {play.subject_id for play in attempts} == {task.id for task in tasks}
        # note: who plays next is told by who began, also where a sandbox is lost and one begins again.
        passed = {(play.turns[1].text.startswith("I am mender."), judged[play.id].passed) for play in attempts}
        assert passed == {(True, True), (False, False)}
        assert {group.role for group in ledger.groups(0)} == {"tree_repairer"}
        update = ledger.update(0)
        assert update is not None
        assert update.skipped is None
        learnt = ledger.trajectories_by_id(update.trajectory_ids)
        assert {play.stage for play in learnt.values()} == {"attempt"}


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_every_reader_takes_such_a_run(played: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--project", str(played.parents[1]))
    with Ledger.read(played) as ledger:
        proposal, [task, *_] = ledger.trajectories(0, "propose")[0], ledger.tasks(0)
    rows = tmp_path / "sft.jsonl"
    # note: the exit code of `status` tells of alarms.
    for words, codes in (
        (["status", str(played)], (0, 1)),
        (["inspect", str(played), proposal.id], (0,)),
        (["why", str(played), task.id], (0,)),
        (["report", str(played)], (0,)),
        (["check", str(played)], (0,)),
        (["export", str(played), "--format", "sft", "--to", str(rows)], (0,)),
    ):
        assert main([*words, *here]) in codes, (words, capsys.readouterr())
    assert all(json.loads(line)["messages"] for line in rows.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_solver_is_told_an_issue_in_an_evaluation(
    played: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], project: Project
) -> None:
    at = Project(folder=played.parents[1], shipped=project.shipped, runs=played.parent)
    here = ("--project", str(at.folder))
    tasks, rows = tmp_path / "tasks.jsonl", tmp_path / "rows.jsonl"
    assert main(["export", str(played), "--format", "tasks", "--to", str(tasks), *here]) == 0
    assert main(["export", str(played), "--format", "swebench", "--to", str(rows), *here]) == 0
    named = [json.loads(line) for line in rows.read_text().splitlines()]
    told = [{"instance_id": row["instance_id"], "problem_statement": f"{ISSUE} {n}"} for n, row in enumerate(named)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in told))
    prompts: list[str] = []

    class Listening:
        def reply(self, said: str) -> str:
            # note: tokens are lines, so that what was said before is all of the conversation.
            if "I was told the following about it." not in said:
                return "..."
            prompts.append(said)
            return mender(said.count("I am here."), said) + "\nI am here."

    words = ["eval", "toy", "--on", str(tasks), "--issues", str(rows), "--attempts", "1", "--sandbox", "bubblewrap"]
    capsys.readouterr()
    with scripted(Listening()):
        assert main([*words, *here]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert f"{len(named)} of {len(named)} tasks by their issues in rows.jsonl: " in out
    assert "  pass@1    100.0 % [" in out
    assert "valid  " not in out.partition("\ntoy")[2], "nobody proposes"
    assert all(any(row["problem_statement"] in prompt for prompt in prompts) for row in told)
    assert not any("```diff" in prompt or "tests fail, among them" in prompt for prompt in prompts)


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_an_issue_is_never_learnt_from_and_nobody_sits_in_for_a_mutation(played: Path, project: Project) -> None:
    at = Project(folder=played.parents[1], shipped=project.shipped, runs=played.parent)
    with Ledger.read(played) as ledger:
        task = ledger.tasks(0)[0]
    made = config(at, at.folder / "pkg-1")
    with Seat.open(made, at, side="proposer", observe=ignore) as seat:
        assert isinstance(seat.game, ProposesAlone)
        with pytest.raises(UserError, match="for strategy `procedural` nobody is asked"):
            seat.prompt(seat.seed(None), strategy="procedural")
        issue = replace(task, payload={**task.payload, "issue": ISSUE})
        with pytest.raises(UserError, match="is told by an issue, and may be learnt from"):
            seat.game.solver_view(issue)
        view = seat.game.solver_view(replace(issue, split="held_out"))
        assert (view["issue"], view["specification"], view["tests"]) == (ISSUE, "", "")
