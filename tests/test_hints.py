"""Hints in the loop: a task on probation is tried with one, learnt from by its own prompt, and counts apart."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from selfplay.audit import audit
from selfplay.build import Outcome
from selfplay.config import load
from selfplay.curriculum import History, uniform
from selfplay.errors import UserError
from selfplay.events import Event, Interrupt
from selfplay.ledger import Ledger, Reader
from selfplay.ledger.held_out import plays as held_out_plays
from selfplay.plan import plan
from selfplay.project import Project, find_project
from selfplay.replay import replay
from selfplay.types import Choice, Seed
from selfplay.views import inspect_text
from selfplay.views.inspect import attempts_on, proposal_of, step_plays

Play = Callable[..., Outcome]

MANY = ("play.proposals=16", "play.refills=0", "rewards.novelty=0")
"""So that an untrained proposer writes a word or two a step."""
PROBATION = (*MANY, "curriculum.choose=frontier", "curriculum.options={probation=0.5, give_up=1}")
REGRET = (*MANY, "rewards.proposer=hint_regret")
STEPS = 6


def again(history: History, seeds: Sequence[Seed], *, n: int, step: int, **kwargs: Any) -> tuple[Choice, ...]:
    """A new task; and, with a hint, the oldest one that is known."""
    (fresh,) = uniform(history, seeds, n=1, step=step, **kwargs)
    known = history.known_tasks(since=0, before=step)
    if not known:
        return (fresh,)
    task, first = known[0].id, fresh.index + 1
    helped = Choice(step=step, index=first, mode="replay", subject_id=task, score=1, why="?", terms={"hint": True})
    return fresh, helped


HINTED = (*MANY, f"curriculum.choose={__name__}:again", "eval.every=2", "eval.tasks=2", "eval.attempts=2")
"""The first task there is is played with a hint in every later step."""


def whole_of(folder: Path) -> dict[str, str]:
    """The run's comparable digests; nothing is wrong with it."""
    assert [problem for checked in audit(folder) for problem in checked.problems] == []
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def hinted(reader: Reader) -> list[Choice]:
    found = [c for step in range(reader.open_step()) for c in reader.choices(step) if c.terms.get("hint")]
    assert found, "no task was tried with a hint"
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, play: Play) -> Path:
    folder = tmp_path_factory.mktemp("hints") / "run"
    play(folder, *HINTED, steps=STEPS)
    return folder


def test_a_task_on_probation_is_tried_with_a_hint(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", *PROBATION, steps=8)
    whole_of(tmp_path / "run")
    with Ledger.read(tmp_path / "run") as reader:
        for choice in hinted(reader):
            assert choice.mode == "replay"
            prompts = {t.turns[0].text for t in on(reader, choice)}
            assert len(prompts) == 1
            assert all(prompt[:2] == f"{prompt[2]}?" for prompt in prompts)


def on(reader: Reader, choice: Choice) -> list[Any]:
    return [t for t in reader.trajectories(choice.step, "attempt") if t.subject_id == choice.subject_id]


def test_only_a_hinted_play_sees_a_hint(run: Path) -> None:
    with Ledger.read(run) as reader:
        chosen = {(choice.step, choice.subject_id) for choice in hinted(reader)}
        for step in range(STEPS):
            for trajectory in reader.trajectories(step, "attempt"):
                assert ("?" in trajectory.turns[0].text) is ((step, trajectory.subject_id) in chosen)


def test_a_hinted_group_is_learnt_from_by_its_own_prompt(run: Path, project: Project) -> None:
    with Ledger.read(run) as reader:
        groups = {c.step: [g for g in reader.groups(c.step) if g.subject_id == c.subject_id] for c in hinted(reader)}
        for step, (group,) in groups.items():
            assert len(group.trajectory_ids) == 4
            members = reader.trajectories_by_id(group.trajectory_ids).values()
            assert {t.turns[0].text[1] for t in members} == {"?"}
            update = reader.update(step)
            assert update is not None
            whole = {t.id for t in members if not t.stop.truncated and t.num_sampled}
            assert whole & set(update.trajectory_ids) == (whole if group.informative else set())
        assert any(group.informative for (group,) in groups.values()), "no hinted group taught anything"
    # note: the recorded update, applied again to the recorded tokens, gives the recorded weights.
    assert replay(run, max(groups), project=project, say=str).equal


def test_a_hinted_play_counts_apart(run: Path) -> None:
    with Ledger.read(run) as reader:
        steps = {choice.step for choice in hinted(reader)}
        (task,) = {choice.subject_id for choice in hinted(reader)}
        (known,) = [one for one in reader.known_tasks(since=0, before=STEPS) if one.id == task]
        assert [(play.step, play.hinted) for play in known.plays] == [
            (known.step, False),
            *((step, True) for step in sorted(steps)),
        ]
        first = [p for p in attempts_on(reader, task) if not p.hinted]
        assert {p.trajectory.step for p in first} == {known.step}
        found = reader.task(task)
        assert found is not None
        assert found.parent_id is not None
        grades = [v for v in reader.verdicts_of(found.parent_id) if v.stage == "grade"]
        assert len(grades) == 1
        solved = sum(bool(p.decision and p.decision.passed) for p in first)
        assert {**grades[0].parts, "novelty": 0.0} == {"solve_rate": solved / len(first), "novelty": 0.0}
        # note: evaluations are of held-out seeds, without a hint.
        looked = [t for step in (0, 2, 4) for t in reader.trajectories(step, "evaluate")]
        assert len([t for t in looked if t.role == "echo_solver"]) == sum(
            play.side == "solver" for step in (0, 2, 4) for play in held_out_plays_of(reader, step)
        )
        assert not [t for t in looked if t.role == "echo_solver" and "?" in t.turns[0].text]


def held_out_plays_of(reader: Reader, step: int) -> Sequence[Any]:
    return reader.ask(lambda ask: held_out_plays(ask, step))


@pytest.mark.parametrize("sets", [HINTED, REGRET], ids=["a known task", "for the reward"])
def test_stopping_inside_a_hinted_play_loses_and_repeats_nothing(
    tmp_path: Path, play: Play, sets: tuple[str, ...]
) -> None:
    play(tmp_path / "whole", *sets, steps=STEPS)
    with Ledger.read(tmp_path / "whole") as reader:
        at = min(step for step in range(STEPS) if reader.tasks(step)) if sets is REGRET else hinted(reader)[0].step
    label, interrupt, ticks = ("attempt with a hint" if sets is REGRET else "attempt"), Interrupt(), []

    def stop(event: Event) -> None:
        if event.step == at and event.stage == label and event.kind == "tick":
            ticks.append(event)
            # note: the hinted task comes last, so its attempts are owed or half done.
            if len(ticks) == event.data["total"] - 2 and not interrupt.level:
                interrupt.press()

    one = (*sets, "policy.max_rows=1")
    assert play(tmp_path / "parts", *one, steps=STEPS, observe=stop, interrupt=interrupt).stop == "interrupted"
    with Ledger.read(tmp_path / "parts") as reader:
        assert reader.last_closed_step() == at - 1
    assert play(tmp_path / "parts", *sets, steps=STEPS).stop == "done"
    assert whole_of(tmp_path / "parts") == whole_of(tmp_path / "whole")


def test_a_tasks_page_shows_its_plays_apart(run: Path) -> None:
    with Ledger.read(run) as reader:
        choice = hinted(reader)[0]
        task = reader.task(choice.subject_id)
        assert task is not None
        assert task.parent_id is not None
        proposal = proposal_of(reader, reader.trajectory(task.parent_id))
        assert {(p.trajectory.step, p.hinted) for p in proposal.attempts} == {(task.step, False)}
        assert {(p.trajectory.step, p.hinted) for p in proposal.replays} == {(c.step, True) for c in hinted(reader)}
        (replayed,) = step_plays(reader, choice.step).replays
        assert (replayed.hinted, replayed.solved[1], len(replayed.attempts)) == (True, 4, 4)
        assert [one.attempts for one in step_plays(reader, choice.step).proposals if one.task == task] == []
        page = inspect_text.task_page(task, seed=None, attempts=attempts_on(reader, task.id))
        listing = drawn(inspect_text.steps_listing([step_plays(reader, choice.step)]))
    assert f"\nagain in step {choice.step}, with a hint\n" in drawn(page)
    assert f"\nstep {task.step}\n" in drawn(page)
    assert ["task", "hint", "solved", "why"] in [row.split() for row in listing.splitlines()]


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=100, highlight=False).print(page)
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


def test_a_reward_is_told_what_a_hint_is_worth(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", *REGRET, steps=STEPS)
    whole_of(tmp_path / "run")
    with Ledger.read(tmp_path / "run") as reader:
        assert any(reader.tasks(step) for step in range(STEPS))
        for step in range(STEPS):
            plain, helped = solved(reader, step, "attempt"), solved(reader, step, "evaluate")
            assert plain.keys() == helped.keys() == {task.id for task in reader.tasks(step)}
            assert not {"evaluate"} & {t.stage for t in learnt(reader, step)}
            mints, grades = (reader.verdicts(step, "propose", stage) for stage in ("mint", "grade"))
            for name, verdict in grades.items():
                task = mints[name].task_id
                expected = 0.0 if task is None else helped[task] - plain[task]
                assert verdict.reward == pytest.approx(expected)
                if task is not None:
                    known = {"solve_rate": plain[task], "hinted": helped[task], "novelty": 0.0}
                    assert {**verdict.parts, "novelty": 0.0} == known
                    assert "with a hint" in verdict.why
        assert all(len(one.plays) == 1 for one in reader.known_tasks(since=0, before=STEPS))


def solved(reader: Reader, step: int, stage: Any) -> dict[str, float]:
    """Task -> share of its attempts that solved it."""
    verdicts = reader.verdicts(step, stage, "judge")
    found: dict[str, list[bool]] = {}
    for trajectory in reader.trajectories(step, stage):
        found.setdefault(trajectory.subject_id, []).append(bool(verdicts[trajectory.id].passed))
    return {task: sum(passed) / len(passed) for task, passed in found.items()}


def learnt(reader: Reader, step: int) -> Sequence[Any]:
    update = reader.update(step)
    return tuple(reader.trajectories_by_id(update.trajectory_ids).values()) if update is not None else ()


@pytest.mark.parametrize("sets", [PROBATION, REGRET])
def test_a_prompt_without_a_place_for_hints_is_refused(sets: Sequence[str], tmp_path: Path, project: Project) -> None:
    shutil.copytree(project.shipped / "roles" / "echo_solver", tmp_path / "roles" / "echo_solver")
    own = find_project(explicit=tmp_path)
    assert plan(load("demo", project=own, sets=sets, environ={}), own)
    (tmp_path / "roles" / "echo_solver" / "prompt.md").write_text("{{ word }}>")
    with pytest.raises(UserError, match="the prompt of role `echo_solver` has no place for one"):
        plan(load("demo", project=own, sets=sets, environ={}), own)
