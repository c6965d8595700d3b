from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.ledger import Ledger, StepRow, Tally
from selfplay.views.status import RunView, run_data, run_screen, runs_table, step_table, time_words


@pytest.fixture(scope="session")
def view(played_run: Path) -> RunView:
    with Ledger.read(played_run) as reader:
        status, alarms = reader.status(), reader.alarms()
    return RunView(name="small", folder="runs/small", status=status, steps=3, holder=None, alarms=alarms)


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(page)
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


SCREEN = """\
small · echo · stopped · 1/3 steps · weights v1
last written 4.0 s ago · seeds: 1 train · 2 tasks

                       played  decided  valid  solved  reward  cut short  faults
proposals                   2        2   50 %           -0.45          0       0
attempts                    2        2  100 %    50 %   +0.00          0       0
proposals (open step)       2        2   50 %               –          0       0
proposals: not_a_word 2, valid 2
attempts: other_word 1, passed 1

step  proposed  valid  tasks  tried  solved  teach   reward p/s  tok/s   time
   0         2   50 %      1      2    50 %    2/2  -0.45 +0.00      6  4.0 s
warning: something to look at"""


def test_one_screen_for_one_run(view: RunView) -> None:
    text = drawn(run_screen(view, now=view.status.last_seen + 4))
    assert text == SCREEN
    assert all(len(row) <= 80 for row in text.splitlines())


def test_one_row_a_run(view: RunView) -> None:
    text = drawn(runs_table([view, replace(view, name="other", holder="process 7 on here")], now=view.status.last_seen))
    assert text.splitlines()[0].split() == ["run", "state", "steps", "valid", "solved", "last", "seen"]
    assert text.splitlines()[1].split()[:3] == ["small", "stopped", "1/3"]
    assert text.splitlines()[2].split()[:2] == ["other", "running"]


def test_states(view: RunView) -> None:
    launch = view.status.launch
    assert launch is not None
    killed = replace(view.status, launch=replace(launch, ended_at=None, how=None))
    failed = replace(view.status, launch=replace(launch, how="failed"))
    assert view.state == "stopped"
    assert replace(view, status=killed).state == "killed"
    assert replace(view, status=failed).state == "failed"
    assert replace(view, steps=1).state == "done"
    assert replace(view, status=killed, holder="process 7").state == "running"
    assert view.resumable
    assert not replace(view, steps=1).resumable


@pytest.mark.parametrize(
    ("how", "state"), [("done", "done"), ("interrupted", "stopped"), ("failed", "failed"), (None, "killed")]
)
def test_how_a_launch_ended_says_how_a_warm_up_alone_or_a_budget_did(view: RunView, how: str, state: str) -> None:
    assert view.status.launch is not None
    launch = replace(view.status.launch, ended_at=1.0 if how else None, how=how)
    for steps, closed in ((0, -1), (1_000_000, 0)):
        found = replace(view, steps=steps, status=replace(view.status, launch=launch, last_closed_step=closed))
        assert found.state == state
        assert replace(found, raised=True).state == ("stopped" if how == "done" else state)
    assert replace(view, steps=0, status=replace(view.status, launch=None, last_closed_step=-1)).state == "killed"


def test_the_answer_for_programs(view: RunView) -> None:
    data = run_data(view)
    assert (data["state"], data["closed"], data["steps"]) == ("stopped", 1, 3)
    assert data["closed_steps"]["attempt"]["passed"] == 1
    assert data["closed_steps"]["propose"]["mean_reward"] == -0.45
    assert data["open_step"]["propose"]["reasons"] == {"not_a_word": 1, "valid": 1}
    assert data["last_step"]["stage_seconds"]["sampling"] == 2.0


def test_many_steps_are_shown_in_stretches() -> None:
    rows = [
        StepRow(
            step=step,
            opened_at=0.0,
            closed_at=1.0,
            stage_seconds={"sampling": 1.0},
            counts={"tasks": 1},
            tallies={"propose/p": Tally(played=2, decided=2, valid=step % 2, tokens=5)},
        )
        for step in range(200)
    ]
    shown = drawn(step_table(rows)).splitlines()
    assert len(shown) == 11
    assert shown[1].split()[:4] == ["0-19", "40", "25", "%"]
    assert shown[-1].split()[0] == "180-199"
    assert len(drawn(step_table(rows[:20])).splitlines()) == 21


def test_where_the_time_went(view: RunView) -> None:
    assert view.status.last_step is not None
    assert time_words([view.status.last_step]) == "sampling 50.0 %, learning 25.0 %, verification 25.0 %"
    assert time_words([]) == ""
