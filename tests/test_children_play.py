"""Children of failed attempts in the loop: made once, played like other tasks, never paid for, equal after a stop."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.audit import audit
from selfplay.build import Outcome
from selfplay.events import Event, Interrupt
from selfplay.ledger import Ledger, Reader
from selfplay.ledger.story import story
from selfplay.project import Project
from selfplay.replay import replay
from selfplay.reverify import stored_attempts
from selfplay.salvage import salvage
from selfplay.types import Choice, Verdict
from selfplay.views import inspect, inspect_data, inspect_text
from selfplay.views.inspect import step_plays
from tests import forked

Play = Callable[..., Outcome]

SETS = (
    *("curriculum.choose=ssr", 'curriculum.options={strategies="", second=0.5}', "curriculum.seeds=4", "run.seed=1"),
    "run.keep_saves=9",
)
"""Every second choice is for a child."""
STEPS = 10
KILLED = """
import os, signal, sys
from pathlib import Path
from selfplay.build import execute
from selfplay.config import load
from selfplay.events import Interrupt
from selfplay.project import find_project
checkout, folder, step, stage, kind, *sets = sys.argv[1:]
project = find_project(explicit=Path(checkout))
def observe(event):
    if (event.step, event.stage, event.kind) == (int(step), stage, kind):
        os.kill(os.getpid(), signal.SIGKILL)
config = load("demo", project=project, sets=sets)
execute(config, project=project, folder=Path(folder), observe=observe, interrupt=Interrupt())
"""
"""The run in a process that ends, as `kill -9` would end it, at the first such event."""


def whole_of(folder: Path) -> dict[str, str]:
    """The run's comparable digests; nothing is wrong with it."""
    assert [problem for checked in audit(folder) for problem in checked.problems] == []
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def mutations(reader: Reader, steps: int = STEPS) -> list[tuple[Choice, Verdict]]:
    """The choices for children, each with what was decided."""
    found = []
    for choice in (choice for step in range(steps) for choice in reader.choices(step) if choice.mode == "mutate"):
        (verdict,) = (v for v in reader.verdicts_of(choice.terms["attempt"]) if v.stage == "mint")
        found.append((choice, verdict))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, play: Play) -> Path:
    """A run in which children were made."""
    folder = tmp_path_factory.mktemp("children") / "run"
    play(folder, *SETS, steps=STEPS)
    with Ledger.read(folder) as reader:
        assert any(verdict.valid for _, verdict in mutations(reader)), "no child was made"
    return folder


def test_a_child_is_a_task_like_others_and_nobody_is_paid_for_it(run: Path) -> None:
    whole_of(run)
    with Ledger.read(run) as reader:
        named = [choice.terms["attempt"] for choice, _ in mutations(reader)]
        assert len(named) == len(set(named))
        for choice, verdict in mutations(reader):
            attempt = reader.trajectory(choice.terms["attempt"])
            assert (attempt.stage, attempt.subject_id) == ("attempt", choice.subject_id)
            assert attempt.step < choice.step
            assert (verdict.reward, verdict.passed) == (None, None)
            assert [v.stage for v in reader.verdicts_of(attempt.id)] == ["judge", "mint"]
            if not verdict.valid:
                continue
            child, parent = reader.task(verdict.task_id or ""), reader.task(choice.subject_id)
            assert child is not None
            assert parent is not None
            assert (child.parent_id, child.step, child.seed_id) == (attempt.id, choice.step, parent.seed_id)
            assert child.payload == {"word": attempt.reply}
            groups = [group for group in reader.groups(choice.step) if group.subject_id == child.id]
            assert [len(group.trajectory_ids) for group in groups] == [4]
            known = {task.id: task for task in reader.known_tasks(since=0, before=STEPS)}[child.id]
            assert (known.parent_id, known.strategy) == (parent.id, "second-order")
            told = reader.ask(lambda ask, name=parent.id: story(ask, name))  # type: ignore[misc]
            assert child.id in [one.id for one in told.children]
            assert len([v for v in reader.verdicts_of(parent.parent_id or "") if v.stage == "grade"]) == 1
            (listed,) = (one for one in step_plays(reader, choice.step).mutations if one.attempt_id == attempt.id)
            assert listed.task == child
            assert len(listed.attempts) == 4
        counts = [row.counts for row in reader.step_rows()]
        assert sum(row["mutated"] for row in counts) == len(named)
        assert sum(row["children"] for row in counts) == sum(verdict.valid for _, verdict in mutations(reader))


def test_a_child_is_shown_beside_what_it_was_made_of(run: Path) -> None:
    with Ledger.read(run) as reader:
        choice, verdict = next((choice, verdict) for choice, verdict in mutations(reader) if verdict.valid)
        child = reader.task(verdict.task_id or "")
        assert child is not None
        origin = inspect.origin_of(reader, child)
        assert origin is not None
        listing = drawn(inspect_text.steps_listing([inspect.step_plays(reader, choice.step)]))
        seen = inspect.play_of(reader, origin)
        assert seen.decision is not None
        assert (seen.decision.stage, seen.child) == ("judge", verdict)
        attempt = drawn(inspect_text.attempt_page(seen, task=reader.task(origin.subject_id)))
        attempts = inspect.attempts_on(reader, child.id)
        page = drawn(inspect_text.task_page(child, seed=None, attempts=attempts, origin=origin))
        on_child = drawn(inspect_text.attempt_page(attempts[0], task=child, origin=origin))
        data = inspect_data.mutation_data(inspect.step_plays(reader, choice.step).mutations[0], content=False)
    assert f"{origin.id[:12]}  {child.id[:12]}" in listing
    assert "child     valid (valid): " in attempt
    assert f"parent    task {choice.subject_id[:12]}, its attempt {origin.id[:12]}" in page
    assert f"child of attempt {origin.id[:12]}" in on_child
    assert data["verdict"]["stage"] == "mint"


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=100, highlight=False).print(page)
    return to.getvalue()


def test_a_child_has_no_child(run: Path) -> None:
    with Ledger.read(run) as reader:
        children = {verdict.task_id for _, verdict in mutations(reader) if verdict.valid}
        assert not children & {choice.subject_id for choice, _ in mutations(reader)}


@pytest.mark.parametrize("event", ["stage", "tick"])
def test_stopping_at_a_child_loses_and_repeats_nothing(run: Path, tmp_path: Path, play: Play, event: str) -> None:
    with Ledger.read(run) as reader:
        step = next(choice.step for choice, verdict in mutations(reader) if verdict.valid)
    interrupt = Interrupt()

    def stop(seen: Event) -> None:
        if (seen.step, seen.stage, seen.kind) == (step, "mutate", event) and not interrupt.level:
            interrupt.press()

    parts = tmp_path / "parts"
    assert play(parts, *SETS, steps=STEPS, observe=stop, interrupt=interrupt).stop == "interrupted"
    with Ledger.read(parts) as reader:
        assert reader.last_closed_step() == step - 1
        assert event == "tick" or not mutations_of(reader, step)
    assert play(parts, *SETS, steps=STEPS).stop == "done"
    assert whole_of(parts) == whole_of(run)


@pytest.mark.parametrize(("stage", "kind"), [("mutate", "tick"), ("attempt", "stage")])
def test_a_kill_at_a_child_loses_and_repeats_nothing(
    run: Path, tmp_path: Path, play: Play, small: Sequence[str], stage: str, kind: str
) -> None:
    """Once when it is decided, and once when it is recorded and its attempts are owed."""
    with Ledger.read(run) as reader:
        step = next(choice.step for choice, verdict in mutations(reader) if verdict.valid)
    parts, checkout = tmp_path / "parts", Path(__file__).parent.parent
    where = [str(checkout), str(parts), str(step), stage, kind]
    killed = forked.run(KILLED, [*where, *small, f"run.steps={STEPS}", *SETS])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert play(parts, *SETS, steps=STEPS).stop == "done"
    assert whole_of(parts) == whole_of(run)


def mutations_of(reader: Reader, step: int) -> list[tuple[Choice, Verdict]]:
    """Those of one step that were decided."""
    found = []
    for choice in (choice for choice in reader.choices(step) if choice.mode == "mutate"):
        found += [(choice, v) for v in reader.verdicts_of(choice.terms["attempt"]) if v.stage == "mint"]
    return found


def test_a_step_with_a_child_is_replayed_and_its_attempts_judged_again(run: Path, project: Project) -> None:
    with Ledger.read(run) as reader:
        last = max(choice.step for choice, verdict in mutations(reader) if verdict.valid)
        stored = stored_attempts(reader)
        assert {verdict.stage for _, _, verdict in stored} == {"judge"}
        assert {task.id for _, task, _ in stored} >= {v.task_id for _, v in mutations(reader) if v.valid}
    assert replay(run, last, project=project, say=str).equal


def test_what_is_salvaged_knows_nothing_of_later_children(run: Path, tmp_path: Path, play: Play) -> None:
    """The last steps are lost: what they decided about older attempts goes with them, and is decided again."""
    with Ledger.read(run) as reader:
        step = next(choice.step for choice, verdict in mutations(reader) if verdict.valid)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name in ("ledger.db", "config.toml"):
        (damaged / name).write_bytes((run / name).read_bytes())
    (damaged / "weights").symlink_to(run / "weights")
    connection = sqlite3.connect(damaged / "ledger.db", isolation_level=None)
    connection.execute("DROP TRIGGER steps_no_delete")
    connection.execute("DELETE FROM steps WHERE step >= ?", (step,))
    connection.close()
    found = salvage(damaged, tmp_path / "saved")
    assert found.steps == step
    assert [
        problem for checked in audit(tmp_path / "saved") for problem in checked.problems if "weights" not in problem
    ] == []
    with Ledger.read(tmp_path / "saved") as reader:
        assert not mutations_of(reader, step)
        left = reader.ask(
            lambda ask: ask(
                "SELECT count(*) AS num FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id "
                "WHERE t.stage = 'attempt' AND v.stage = 'mint'"
            )
        )
        assert left[0]["num"] == len(mutations(reader, step))
    play(tmp_path / "saved", *SETS, steps=STEPS)
    assert whole_of(tmp_path / "saved") == whole_of(run)


@pytest.mark.parametrize(
    ("damage", "check", "problem"),
    [
        (
            "DELETE FROM verdicts WHERE stage = 'mint' AND trajectory_id = :attempt",
            "choices",
            "nothing was decided about",
        ),
        ("UPDATE choices SET mode = 'replay' WHERE mode = 'mutate'", "verdicts", "and no choice named it"),
        (
            "UPDATE verdicts SET reward = 0.5 WHERE stage = 'mint' AND trajectory_id = :attempt",
            "verdicts",
            "was paid for",
        ),
        ("UPDATE choices SET terms = '{}' WHERE mode = 'mutate'", "choices", "which no earlier step has on its task"),
        ("UPDATE tasks SET parent_id = :attempt WHERE id = :parent", "choices", "is the child of a child"),
    ],
)
def test_damage_to_a_child_is_named(run: Path, tmp_path: Path, damage: str, check: str, problem: str) -> None:
    with Ledger.read(run) as reader:
        choice = next(choice for choice, verdict in mutations(reader) if verdict.valid)
    folder = Path(shutil.copytree(run, tmp_path / "damaged"))
    with contextlib.closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(damage, {"attempt": choice.terms["attempt"], "parent": choice.subject_id})
    found = {checked.name: "; ".join(checked.problems) for checked in audit(folder)}
    assert problem in found[check]
