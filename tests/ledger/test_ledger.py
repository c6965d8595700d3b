"""The writer: what is appended is there, once, or somebody is told."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace

import pytest

from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.ledger import Ledger
from selfplay.types import Fault, Stop


def test_every_record_comes_back(ledger, make):
    seed, choice, proposal = make.seed(), make.choice(), make.play()
    task = make.task(parent_id=proposal.id)
    attempt = make.play(stage="attempt", subject_id=task.id)
    fault = Fault(culprit="sandbox", where="sandbox.create", message="no engine", detail="Traceback ...")
    mint = make.verdict(proposal, "mint", task_id=task.id)
    judge = make.verdict(
        attempt, valid=False, fault=fault, parts={"p": 0.5}, evidence={"tests": ["a", "b"]}, seconds=2.0
    )
    group, update, save = make.group([proposal], (0.5,)), make.update(), make.save()
    ledger.append(seed, choice, proposal, task, attempt, mint, judge)
    ledger.close_step(step=0, groups=[group], update=update, stage_seconds={"sampling": 1.5}, counts={"valid": 1})
    ledger.append_save(save)

    assert ledger.seeds() == (seed,)
    assert ledger.choices(0) == (choice,)
    assert ledger.trajectories(0, "propose") == (proposal,)
    assert ledger.trajectory(attempt.id) == attempt
    assert ledger.task(task.id) == ledger.find_task(task.key) == task
    assert ledger.verdicts(0, "propose", "mint") == {proposal.id: mint}
    assert ledger.verdicts_of(attempt.id) == (judge,)
    assert ledger.groups(0) == (group,)
    assert ledger.updates("play") == (update,)
    assert ledger.saves() == (save,)
    (row,) = ledger.step_rows()
    assert (row.step, row.stage_seconds, row.counts) == (0, {"sampling": 1.5}, {"valid": 1})


def test_a_read_sees_what_was_appended_before_it(ledger, make):
    for index in range(50):
        ledger.append(make.play(index=index))
        assert len(ledger.attempts_made(0, "propose")) == index + 1


def test_the_same_again_does_nothing(ledger, make):
    proposal, task = make.play(), make.task()
    records = (make.seed(), make.choice(), proposal, task, make.verdict(proposal, "mint", task_id=task.id))
    for _ in range(2):
        ledger.append(*records).result()
        ledger.append(*records, *records)
    ledger.append(replace(proposal, seconds=99.0)).result()
    ledger.append_save(make.save())
    ledger.append_save(make.save())
    ledger.record_update(make.update(0, "warmup"))
    ledger.record_update(make.update(0, "warmup")).result()
    assert len(ledger.trajectories(0, "propose")) == 1
    assert ledger.trajectory(proposal.id).seconds == proposal.seconds
    assert len(ledger.saves()) == ledger.num_updates("warmup") == 1


def test_the_same_again_is_nothing_in_a_closed_step_too(ledger, make):
    make.step(ledger, 0)
    before = ledger.comparable()
    ledger.append(*ledger.choices(0), *ledger.trajectories(0, "attempt"), *ledger.tasks(0)).result()
    for verdict in ledger.verdicts(0, "attempt", "judge").values():
        ledger.append(verdict).result()
    make.close(ledger, 0, groups=list(ledger.groups(0)))
    assert ledger.comparable() == before


@pytest.mark.parametrize("change", ["turns", "logprobs", "stop", "product", "text", "fewer", "call"])
def test_other_content_under_the_same_id_is_refused(ledger, make, change):
    first = make.play()
    ledger.append(first).result()
    turn = first.turns[1]
    other = {
        "turns": replace(turn, token_ids=(8, 99)),
        "logprobs": replace(turn, logprobs=(-0.5, -0.75)),
        "text": replace(turn, text="ac"),
        "call": replace(turn, calls=(replace(turn.calls[0], result="b.py\n"),)),
    }
    if change == "stop":
        second = replace(first, stop=Stop.TOKENS)
    elif change == "product":
        second = replace(first, product={"patch": "--- a"})
    elif change == "fewer":
        second = replace(first, turns=first.turns[:2])
    else:
        second = replace(first, turns=(first.turns[0], other[change], *first.turns[2:]))
    with pytest.raises(RunFailed, match=rf"refused trajectories id={first.id}"):
        ledger.append(second).result()
    assert ledger.trajectory(first.id) == first
    with pytest.raises(RunFailed, match="refused"):
        ledger.flush()


def test_a_refusal_hits_only_the_guilty_call_and_all_of_it(ledger, make):
    ledger.append(make.seed()).result()
    futures = [ledger.append(make.play(index=index)) for index in range(3)]
    guilty = ledger.append(make.play(index=3), make.seed(source="elsewhere"))
    futures += [ledger.append(make.play(index=index)) for index in range(4, 7)]
    for future in futures:
        future.result()
    with pytest.raises(RunFailed, match="refused"):
        guilty.result()
    assert [trajectory.index for trajectory in ledger.trajectories(0, "propose")] == [0, 1, 2, 4, 5, 6]
    with pytest.raises(RunFailed, match="refused"):
        make.close(ledger, 0)
    assert ledger.last_closed_step() == -1
    make.close(ledger, 0)


def test_a_refusal_that_nobody_looked_at_is_raised_by_close(folder, create, make):
    ledger = create(folder)
    ledger.append(make.seed())
    ledger.append(make.seed(source="elsewhere"))
    with pytest.raises(RunFailed, match="refused seeds id=s0: seeds id=s0 is there with another source"):
        ledger.close()
    ledger.close()
    with pytest.raises(RunFailed, match="is closed"):
        ledger.append(make.seed())


def test_a_row_that_refers_to_nothing_is_refused(ledger, make):
    with pytest.raises(RunFailed, match="it refers to a row that does not exist"):
        ledger.append(make.verdict(make.play())).result()
    with pytest.raises(RunFailed):
        ledger.flush()
    ledger.append(make.play(), make.verdict(make.play())).result()


@pytest.mark.parametrize("broken", ["reward", "evidence", "logprobs", "token"])
def test_what_cannot_be_stored_is_refused_at_once(ledger, make, broken):
    trajectory = make.play()
    turn = trajectory.turns[1]
    bad = {
        "reward": lambda: make.verdict(trajectory, reward=float("nan")),
        "evidence": lambda: make.verdict(trajectory, evidence={"seconds": float("inf")}),
        "logprobs": lambda: replace(trajectory, turns=(replace(turn, logprobs=(float("nan"), 0.0)),)),
        "token": lambda: replace(trajectory, turns=(replace(turn, token_ids=(1 << 40, 2)),)),
    }
    with pytest.raises(ValueError):
        ledger.append(bad[broken]())


def test_odd_text_survives_or_becomes_printable(ledger, make):
    turn = replace(make.turns()[1], text="a\0b\ud800\U0001f600")
    trajectory = replace(make.play(), turns=(turn,))
    verdict = make.verdict(trajectory, why="it said \ud800\0", evidence={"said": "\ud800"})
    ledger.append(trajectory, verdict).result()
    assert ledger.trajectory(trajectory.id) == trajectory
    (found,) = ledger.verdicts_of(trajectory.id)
    assert found == replace(verdict, why="it said \ufffd\0")


def test_an_attempt_of_a_closed_step_is_decided_for_a_child_that_an_open_step_chose(ledger, make):
    make.step(ledger, 0)
    attempt, other = ledger.trajectories(0, "attempt")
    before = ledger.step_rows()[0].tallies
    mint = make.verdict(other, "mint", valid=False, reason="same_as_parent")
    for refused in (mint, make.verdict(attempt, "mint", valid=False)):
        with pytest.raises(RunFailed, match="closed step"):
            ledger.append(refused).result()
        with pytest.raises(RunFailed):
            ledger.flush()
    ledger.append(make.choice(1, mode="mutate", subject_id=other.subject_id, terms={"attempt": other.id}))
    ledger.append(mint).result()
    with pytest.raises(RunFailed, match="closed step"):
        ledger.append(make.verdict(attempt, "mint", valid=False)).result()
    with pytest.raises(RunFailed):
        ledger.flush()
    with pytest.raises(RunFailed, match="is there with another"):
        ledger.append(replace(mint, reason="valid")).result()
    with pytest.raises(RunFailed):
        ledger.flush()
    assert [verdict.stage for verdict in ledger.verdicts_of(other.id)] == ["judge", "mint"]
    make.close(ledger, 1)
    assert [row.tallies for row in ledger.step_rows()] == [before, {}]


def test_what_belongs_to_a_closed_step_is_refused(ledger, make):
    make.step(ledger, 0)
    late = make.play(index=5)
    for records in (
        [late],
        [make.choice(index=5)],
        [make.task("late", parent_id=ledger.trajectories(0, "propose")[0].id)],
    ):
        with pytest.raises(RunFailed, match="closed step"):
            ledger.append(*records).result()
        with pytest.raises(RunFailed):
            ledger.flush()
    proposal = ledger.trajectories(0, "propose")[0]
    with pytest.raises(RunFailed, match="closed step"):
        ledger.append(make.verdict(proposal, "judge")).result()
    evaluated = make.play(stage="evaluate", index=5)
    with pytest.raises(RunFailed):
        ledger.flush()
    ledger.append(evaluated, make.verdict(evaluated)).result()


def test_steps_close_in_order_once(ledger, make):
    with pytest.raises(RunFailed, match="in order"):
        make.close(ledger, 1)
    make.close(ledger, 0)
    with pytest.raises(RunFailed, match="updates phase=play step=0 is there with another weights_digest"):
        make.close(ledger, 0, update=make.update(0, weights_digest="other"))
    with pytest.raises(ValueError, match="step 1 cannot be closed by update 0"):
        make.close(ledger, 1, update=make.update(0))
    with pytest.raises(ValueError, match="group of step 0"):
        make.close(ledger, 1, groups=[make.group([make.play()], (1.0,))])
    with pytest.raises(ValueError, match="close_step"):
        ledger.record_update(make.update(1))
    make.close(ledger, 1, update=None)
    assert ledger.last_closed_step() == 1


def test_a_step_closes_whole_or_not_at_all(ledger, make):
    stranger = make.play(index=9)
    with pytest.raises(RunFailed, match="does not exist"):
        make.close(ledger, 0, groups=[make.group([stranger], (1.0,))])
    assert (ledger.last_closed_step(), ledger.updates("play"), ledger.groups(0)) == (-1, (), ())


def test_many_threads_may_append_and_read(ledger, make):
    def work(number: int) -> None:
        for index in range(20):
            trajectory = make.play(index=number * 100 + index)
            ledger.append(trajectory)
            assert ledger.trajectory(trajectory.id) == trajectory

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.trajectories(0, "propose")) == 80


def test_a_reader_sees_committed_rows_while_the_run_goes_on(ledger, make):
    with Ledger.read(ledger.folder) as reader:
        for step in range(3):
            make.step(ledger, step)
            assert reader.last_closed_step() == step
            assert reader.status() == ledger.status()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("INSERT INTO alarms VALUES (1, 'note', '', '', NULL, 0)")


def test_the_file_itself_refuses_changes(ledger, make):
    make.step(ledger, 0)
    connection = sqlite3.connect(ledger.folder / "ledger.db")
    for sql in (
        "UPDATE verdicts SET reward = 1",
        "DELETE FROM trajectories",
        "DELETE FROM blobs",
        "UPDATE blobs SET data = x'00'",
        "UPDATE steps SET step = 5",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(sql)
    connection.close()


def test_pruned_logprobs_are_gone_and_nothing_else(ledger, make):
    make.step(ledger, 0)
    make.step(ledger, 1)
    freed = ledger.prune_logprobs(before=1)
    assert freed > 0
    assert ledger.prune_logprobs(before=1) == 0
    (pruned,) = ledger.trajectories(0, "propose")
    (kept,) = ledger.trajectories(1, "propose")
    whole = make.play()
    assert pruned == replace(whole, turns=tuple(replace(turn, logprobs=()) for turn in whole.turns))
    assert kept == make.play(1)
    assert ledger.update(0).old_logprobs == ((), ())
    assert ledger.update(1).old_logprobs == make.update(1).old_logprobs
    ledger.append(whole).result()
    assert ledger.check() == ()


def test_launches_faults_alarms_and_control_are_told(folder, create, make):
    fault = Fault(culprit="machine", where="disk", message="slow")
    with create(folder) as ledger:
        ledger.append_fault(fault, trajectory_id="not recorded", attempt=1)
        ledger.append_alarm(level="warning", code="truncated", message="half of all replies are cut", step=3)
        ledger.append_control(action="set", arguments={"learner.lr": 1e-6})
        ledger.end_launch("stopped")
        ledger.end_launch("again")
    with Ledger.open(folder) as ledger:
        first, second = ledger.launches()
        assert (first.how, second.how, second.ended_at) == ("stopped", None, None)
        assert first.ended_at >= first.started_at
        (row,) = ledger.faults()
        assert (row.fault, row.trajectory_id, row.attempt) == (fault, "not recorded", 1)
        (alarm,) = ledger.alarms()
        assert (alarm.level, alarm.code, alarm.step) == ("warning", "truncated", 3)
        (line,) = ledger.control()
        assert (line.action, line.arguments) == ("set", {"learner.lr": 1e-6})


def test_create_refuses_what_exists_and_open_what_does_not(folder, create):
    with pytest.raises(NotFound, match="there is no run in"):
        Ledger.open(folder)
    with pytest.raises(NotFound):
        Ledger.read(folder)
    assert not folder.exists()
    create(folder).close()
    with pytest.raises(UserError, match="already"):
        create(folder)
    with Ledger.open(folder) as ledger:
        row = ledger.run_row()
    assert (row.config_digest, row.config, row.seed, row.game) == ("c0", {"run": {"steps": 2}}, 7, "echo")


def test_a_closed_ledger_is_one_file_and_its_lock(folder, create, make):
    with create(folder) as ledger:
        make.step(ledger, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.db", "ledger.lock"]
