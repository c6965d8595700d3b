"""What a run can be asked."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from selfplay.errors import NotFound
from selfplay.ledger import Ledger
from selfplay.types import Fault, Stop


def test_an_empty_run_answers_everything(ledger):
    status = ledger.status()
    assert (status.last_closed_step, status.closed, status.open, status.last_step) == (-1, {}, {}, None)
    assert (status.num_tasks, status.num_faults, status.policy_version) == (0, 0, 0)
    assert status.launch == ledger.launches()[0]
    assert status.last_seen >= status.run.at
    assert (ledger.last_closed_step(), ledger.open_step()) == (-1, 0)
    assert ledger.choices(0) == ledger.trajectories(0, "propose") == ledger.groups(0) == ledger.updates() == ()
    assert ledger.verdicts(0, "attempt", "judge") == ledger.played_seeds(before=9) == {}
    assert ledger.task("none") is ledger.find_task("none") is ledger.update(0) is ledger.seed("none") is None
    with pytest.raises(NotFound, match="no trajectory none"):
        ledger.trajectory("none")


def test_a_fault_is_counted_but_not_returned_as_played(ledger, make):
    fault = Fault(culprit="machine", where="sampler", message="out of memory")
    first = make.play(fault=fault, stop=Stop.FAULT)
    second = make.play(attempt=1)
    ledger.append(make.play(index=1), first, second)
    assert ledger.trajectories(0, "propose") == (second, make.play(index=1))
    assert ledger.trajectories(0, "propose", faulty=True) == (first,)
    assert ledger.attempts_made(0, "propose") == {("s0", "proposer", 0): 2, ("s0", "proposer", 1): 1}
    assert ledger.trajectories_of("s0") == (first, second, make.play(index=1))


def test_the_order_does_not_depend_on_what_finished_first(ledger, make):
    plays = [make.play(0, "attempt", index, subject_id=subject) for subject in ("a", "b") for index in range(3)]
    for play in reversed(plays):
        ledger.append(play)
        ledger.append(make.verdict(play))
    assert ledger.trajectories(0, "attempt") == tuple(plays)
    assert list(ledger.verdicts(0, "attempt", "judge")) == [play.id for play in plays]


def test_stages_and_kinds_of_verdict_are_told_apart(ledger, make):
    proposal, attempt, dev = make.play(), make.play(stage="attempt"), make.play(stage="evaluate")
    mint, grade = make.verdict(proposal, "mint"), make.verdict(proposal, "grade", reward=0.5)
    judge, looked = make.verdict(attempt), make.verdict(dev)
    ledger.append(proposal, attempt, dev, mint, grade, judge, looked)
    assert ledger.verdicts(0, "propose", "mint") == {proposal.id: mint}
    assert ledger.verdicts(0, "propose", "grade") == {proposal.id: grade}
    assert ledger.verdicts(0, "attempt", "judge") == {attempt.id: judge}
    assert ledger.verdicts(0, "evaluate", "judge") == {dev.id: looked}
    assert ledger.verdicts_of(proposal.id) == (mint, grade)


def test_played_seeds_count_closed_steps_only(ledger, make):
    for step in range(3):
        ledger.append(make.choice(step, 0), make.choice(step, 1, subject_id="s1"), make.choice(step, 2, mode="replay"))
        if step < 2:
            make.close(ledger, step)
    assert ledger.played_seeds(before=9) == {"s0": 2, "s1": 2}
    assert ledger.played_seeds(before=1) == {"s0": 1, "s1": 1}


def test_updates_by_phase_and_step(ledger, make):
    for index in range(3):
        ledger.record_update(make.update(index, "warmup"))
    for step in range(3):
        make.close(ledger, step)
    assert [(u.phase, u.step) for u in ledger.updates()] == [(p, s) for p in ("warmup", "play") for s in range(3)]
    assert [u.step for u in ledger.updates("play", after=0)] == [1, 2]
    assert ledger.update(1) == make.update(1)
    assert ledger.update(1, "warmup") == make.update(1, "warmup")
    assert (ledger.num_updates("warmup"), ledger.num_updates("play")) == (3, 3)


def test_shortened_ids(ledger, make):
    ledger.append(make.seed("abc1"), make.seed("abd2"), make.play(id="abc9"), make.task(seed_id="abc1"))
    task_id = make.task().id
    assert ledger.by_prefix("abc") == (("seeds", "abc1"), ("trajectories", "abc9"))
    assert ledger.by_prefix("abd") == (("seeds", "abd2"),)
    assert ledger.by_prefix(task_id[:6]) == (("tasks", task_id),)
    assert ledger.by_prefix("ab%") == ledger.by_prefix("zz") == ()
    assert len(ledger.by_prefix("", limit=2)) == 2


def test_groups_carry_the_advantages_of_their_members(ledger, make):
    make.step(ledger, 0)
    (group,) = ledger.groups(0)
    assert group.advantages == (1.0, -1.0)
    assert ledger.groups_of(group.trajectory_ids[0]) == (group,)
    assert ledger.groups_of("none") == ()


def test_status_adds_what_is_closed_and_what_is_open(ledger, make):
    for step in range(2):
        make.step(ledger, step)
    ledger.append(make.choice(2), make.play(2))
    ledger.append_fault(Fault(culprit="sandbox", where="create", message="no"), attempt=0)
    ledger.append_alarm(level="error", code="x", message="y")
    status = ledger.status()
    assert status.last_closed_step == 1
    assert status.closed["propose/proposer"].played == 2
    assert status.closed["attempt/solver"].passed == 2
    assert status.open["propose/proposer"].played == 1
    assert status.last_step == ledger.step_rows()[-1]
    assert (status.num_seeds, status.num_tasks, status.num_updates) == ({"train": 1}, 2, {"play": 2})
    assert (status.num_faults, status.num_alarms, status.policy_version) == (1, {"error": 1}, 2)


def test_status_asks_for_no_more_as_the_run_grows(ledger, make):
    def work() -> int:
        """Virtual machine instructions of one status, in hundreds."""
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        ledger._connection.set_progress_handler(tick, 100)
        ledger.status()
        ledger._connection.set_progress_handler(None, 0)
        return ticks

    make.step(ledger, 0)
    before = work()
    for step in range(1, 60):
        make.step(ledger, step)
    assert work() <= before + 10


def test_readers_import_nothing_heavy(ledger, child_env):
    script = (
        "import sys; from pathlib import Path; from selfplay.ledger import Ledger; "
        "reader = Ledger.read(Path(sys.argv[1])); reader.status(); reader.close(); "
        "print(*({'sqlite_utils', 'numpy', 'torch', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ledger.folder)], env=child_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"


def test_a_moved_run_and_odd_folder_names(tmp_path, create, make):
    odd = tmp_path / "a b?c#d%20é"
    with create(odd) as ledger:
        make.step(ledger, 0)
    moved = odd.rename(tmp_path / "moved")
    with Ledger.read(moved) as reader:
        assert reader.last_closed_step() == 0


def test_what_the_file_says_is_wrong_is_told(folder, create, make):
    with create(folder) as ledger:
        make.step(ledger, 0)
    connection = sqlite3.connect(folder / "ledger.db")
    connection.execute("DROP TRIGGER seeds_no_delete")
    connection.execute("DELETE FROM seeds")
    connection.commit()
    connection.close()
    with Ledger.read(folder) as reader:
        (problem,) = reader.check()
    assert problem == "row 1 of tasks refers to a missing row of seeds"


def test_tasks_of_a_step(ledger, make):
    tasks = [make.task(f"word {i}", step=i % 2) for i in range(4)]
    ledger.append(make.seed(), *tasks)
    assert [task.id for task in ledger.tasks(1)] == sorted(task.id for task in (tasks[1], tasks[3]))
    assert ledger.find_task("word 2") == tasks[2]
    assert ledger.task(tasks[0].id) == tasks[0]


def test_a_closed_reader_is_not_a_damaged_file(folder, create):
    ledger = create(folder)
    ledger.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        ledger.seeds()
