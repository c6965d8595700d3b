"""Tasks that a run is given: made, taken from another run or a file, and played each as often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.errors import UserError
from selfplay.evaluation import tasks as files
from selfplay.events import Event
from selfplay.ledger import Ledger
from selfplay.project import Project

Play = Callable[..., Outcome]


def test_procedural_tasks_are_played_evenly_and_nothing_is_proposed(tmp_path: Path, play: Play) -> None:
    told: list[Event] = []
    play(tmp_path / "run", "curriculum.choose=given", "curriculum.seeds=1", steps=4, observe=told.append)
    made = [event.data["done"] for event in told if (event.kind, event.stage) == ("tick", "given")]
    [total] = {event.data["total"] for event in told if event.stage == "given"}
    assert made == list(range(1, total + 1)), "how far it is, of so many train seeds"
    with Ledger.read(tmp_path / "run") as reader:
        given = [task for task in reader.tasks(-1) if task.split == "train"]
        chosen = [choice for step in range(4) for choice in reader.choices(step)]
        assert {choice.mode for choice in chosen} == {"replay"}
        counts = Counter(choice.subject_id for choice in chosen)
        assert set(counts) == {task.id for task in given}
        assert max(counts.values()) - min(counts.values()) <= 1
        assert not any(reader.trajectories(step, "propose") for step in range(4))
        assert reader.check() == ()


def test_frontier_rehearses_procedural_tasks(tmp_path: Path, play: Play) -> None:
    options = ("curriculum.choose=frontier", "curriculum.options={rehearse = 0.5}", "curriculum.seeds=4")
    play(tmp_path / "run", *options, steps=2)
    play(tmp_path / "run", *options, steps=4)
    play(tmp_path / "again", *options, steps=4)
    with Ledger.read(tmp_path / "run") as reader, Ledger.read(tmp_path / "again") as again:
        given = {task.id for task in reader.tasks(-1) if task.split == "train"}
        chosen = [choice for step in range(4) for choice in reader.choices(step)]
        rehearsed = [choice for choice in chosen if choice.why.startswith("rehearsed: given beforehand")]
        assert len(rehearsed) >= 8, "two of four in every round"
        assert {choice.subject_id for choice in rehearsed} <= given
        assert any(choice.mode == "propose" for choice in chosen)
        assert reader.check() == ()
        assert reader.comparable() == again.comparable(), "stopped once, and not"


def test_few_are_made_where_so_many_are_asked_for(tmp_path: Path, play: Play) -> None:
    """Which of the seeds is drawn by the run's own seed; what is played is as far as that goes the same."""
    made = {}
    for run, options in {
        "all": ("curriculum.choose=given",),
        "given": ("curriculum.choose=given", "curriculum.options={tasks = 'procedural:1'}"),
        "rehearsed": ("curriculum.choose=frontier", "curriculum.options={rehearse = 0.5, rehearsed = 1}"),
    }.items():
        play(tmp_path / run, *options, steps=1)
        with Ledger.read(tmp_path / run) as reader:
            made[run] = {task.seed_id for task in reader.tasks(-1) if task.split == "train"}
            assert reader.check() == ()
    assert len(made["all"]) > 1 == len(made["given"])
    assert made["given"] == made["rehearsed"] < made["all"]


@pytest.mark.parametrize("tasks", ["procedural:", "procedural:0", "procedural:-1", "procedural:few"])
def test_so_many_of_which_nobody_knows_how_many(tmp_path: Path, play: Play, tasks: str) -> None:
    with pytest.raises(UserError, match="option `tasks` is"):
        play(tmp_path / "run", "curriculum.choose=given", f"curriculum.options={{tasks = '{tasks}'}}", steps=1)


def test_another_runs_tasks_are_given_under_ids_of_this_run(tmp_path: Path, play: Play, six_steps: Path) -> None:
    with Ledger.read(six_steps) as reader:
        theirs = {task.key: task.id for step in range(6) for task in reader.tasks(step) if task.split == "train"}
    options = f"curriculum.options={{tasks = '{six_steps}', patience = 9}}"
    play(tmp_path / "run", "curriculum.choose=given", options, steps=2)
    with Ledger.read(tmp_path / "run") as reader:
        own = {task.key: task for task in reader.tasks(-1) if task.split == "train"}
        assert own.keys() == theirs.keys() != set()
        assert all(task.id != theirs[key] and task.parent_id is None for key, task in own.items())
        assert reader.check() == ()


def test_a_file_of_tasks(tmp_path: Path, play: Play, six_steps: Path, project: Project, toy_config: Play) -> None:
    with Ledger.read(six_steps) as reader:
        seeds = reader.seeds()
        tasks = [task for step in range(6) for task in reader.tasks(step) if task.split == "train"]
        digest = reader.run_row().config_digest
    rows = files.rows(tasks, seeds, config=toy_config(), config_digest=digest, digest=None)  # type: ignore[arg-type]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    play(tmp_path / "run", "curriculum.choose=given", "curriculum.options={tasks = '../tasks.jsonl'}", steps=1)
    with Ledger.read(tmp_path / "run") as reader:
        assert {task.key for task in reader.tasks(-1)} == {task.key for task in tasks}


def test_a_run_that_is_not_there(tmp_path: Path, play: Play) -> None:
    with pytest.raises(UserError, match="no file"):
        play(tmp_path / "run", "curriculum.choose=given", "curriculum.options={tasks = '../other'}", steps=1)
