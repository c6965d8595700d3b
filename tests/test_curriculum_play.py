"""Curricula in the loop: known tasks are attempted again, empty rounds close the step, what no game has is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from selfplay.audit import audit
from selfplay.build import Outcome, execute
from selfplay.choices import of_round
from selfplay.config import load
from selfplay.curriculum import History, uniform
from selfplay.errors import RunFailed, UserError
from selfplay.events import Event, Interrupt, ignore
from selfplay.ledger import Ledger, Reader
from selfplay.project import Project
from selfplay.replay import replay
from selfplay.types import Choice, Seed
from selfplay.views.inspect import attempts_on, step_plays

Play = Callable[..., Outcome]

NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "curricula").glob("demo-*.toml"))
AGAIN = (
    "curriculum.choose=frontier",
    "curriculum.options={replay=0.8, only_better=false, give_up=0, max_replays=0, retire=1.0}",
    "play.min_groups=3",
)
"""Most choices replay."""
REFILLED = ("curriculum.choose=ssp", 'curriculum.options={refill="full"}', "play.min_groups=9")
"""Every step has a refill round, which replays."""


def whole_of(folder: Path) -> dict[str, str]:
    """The run's comparable digests; nothing is wrong with it."""
    assert [problem for checked in audit(folder) for problem in checked.problems] == []
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def replays(reader: Reader, steps: int) -> list[Choice]:
    return [choice for step in range(steps) for choice in reader.choices(step) if choice.mode == "replay"]


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_plays_and_comes_back(name: str, tmp_path: Path, project: Project, small: Sequence[str]) -> None:
    for folder, launches in (("whole", (6,)), ("parts", (2, 6))):
        for steps in launches:
            config = load(name, project=project, sets=[*small, f"run.steps={steps}"], environ={})
            place = tmp_path / folder
            done = execute(config, project=project, folder=place, observe=ignore, interrupt=Interrupt())
            assert done == Outcome(stop="done", steps=steps)
    assert whole_of(tmp_path / "parts") == whole_of(tmp_path / "whole")


def test_a_known_task_is_attempted_again_and_its_proposal_is_not_graded_again(
    tmp_path: Path, play: Play, project: Project
) -> None:
    play(tmp_path / "run", *AGAIN, steps=6)
    whole_of(tmp_path / "run")
    with Ledger.read(tmp_path / "run") as reader:
        chosen = replays(reader, 6)
        assert chosen, "nothing was replayed"
        for choice in chosen:
            task = reader.task(choice.subject_id)
            assert task is not None
            assert task.parent_id is not None
            assert task.step < choice.step
            played = Counter(play.trajectory.step for play in attempts_on(reader, task.id))
            assert played[task.step] == played[choice.step] == 4
            groups = [group for group in reader.groups(choice.step) if group.subject_id == task.id]
            assert [len(group.trajectory_ids) for group in groups] == [4]
            grades = [verdict for verdict in reader.verdicts_of(task.parent_id) if verdict.stage == "grade"]
            assert len(grades) == 1
            first = [v for t, v in judged(reader, task.step) if t == task.id]
            assert grades[0].parts["solve_rate"] == sum(bool(v) for v in first) / 4
        assert all(len(reader.tasks(step)) <= 16 for step in range(6))
        taught = {trajectory_id for update in reader.updates("play") for trajectory_id in update.trajectory_ids}
        again = {t.id for c in chosen for t in reader.trajectories(c.step, "attempt") if t.subject_id == c.subject_id}
        assert taught & again, "no replay was learnt from"
        status = reader.status()
        assert status.closed["attempt/echo_solver"].played == sum(
            len(reader.trajectories(step, "attempt")) for step in range(6)
        )
        last = max(choice.step for choice in chosen)
        assert step_plays(reader, last).closed
    assert replay(tmp_path / "run", last, project=project, say=str).equal


def judged(reader: Reader, step: int) -> list[tuple[str, bool | None]]:
    """(task, passed) of every attempt of a step."""
    verdicts = reader.verdicts(step, "attempt", "judge")
    return [(t.subject_id, verdicts[t.id].passed) for t in reader.trajectories(step, "attempt")]


@pytest.mark.parametrize(("refill", "sets"), [(0, AGAIN), (1, REFILLED)], ids=["first round", "refill"])
def test_stopping_inside_a_replay_loses_and_repeats_nothing(
    tmp_path: Path, play: Play, refill: int, sets: tuple[str, ...]
) -> None:
    play(tmp_path / "whole", *sets, steps=8)
    with Ledger.read(tmp_path / "whole") as reader:
        known = [choice.step for choice in replays(reader, 8) if choice.terms.get("round", 0) == refill]
    assert known, "nothing was replayed in such a round"
    step, interrupt, rounds = known[0], Interrupt(), []

    def stop(event: Event) -> None:
        # note: counted by what is said between rounds, since a round of no valid proposal has no attempts.
        if event.step == step and event.kind == "note" and "refilling" in event.data["text"]:
            rounds.append(event)
        judged = event.step == step and event.stage == "attempt" and event.kind == "tick"
        if judged and len(rounds) == refill and not interrupt.level:
            interrupt.press()

    # note: one row, so that attempts are still owed when the first is judged.
    one = (*sets, "policy.max_rows=1")
    assert play(tmp_path / "parts", *one, steps=8, observe=stop, interrupt=interrupt).stop == "interrupted"
    with Ledger.read(tmp_path / "parts") as reader:
        assert reader.last_closed_step() == step - 1
        assert {choice.terms.get("round", 0) for choice in reader.choices(step)} == set(range(refill + 1))
    assert play(tmp_path / "parts", *sets, steps=8).stop == "done"
    assert whole_of(tmp_path / "parts") == whole_of(tmp_path / "whole")


def test_an_empty_refill_round_closes_the_step(tmp_path: Path, play: Play) -> None:
    sets = ("curriculum.choose=ssp", 'curriculum.options={refill="dummy"}', "play.min_groups=9", "play.refills=3")
    play(tmp_path / "run", *sets, steps=2)
    with Ledger.read(tmp_path / "run") as reader:
        assert [len(reader.choices(step)) for step in range(2)] == [2, 2]
    whole_of(tmp_path / "run")


def test_seeds_that_the_step_has_played_are_not_played_twice(tmp_path: Path, play: Play) -> None:
    """Four train seeds: the first round takes all of them, a refill has none left."""
    play(tmp_path / "run", "curriculum.seeds=4", "play.min_groups=20", steps=2)
    with Ledger.read(tmp_path / "run") as reader:
        assert [len(reader.choices(step)) for step in range(2)] == [4, 4]
        for group in reader.groups(1):
            assert len(set(group.trajectory_ids)) == len(group.trajectory_ids)
    whole_of(tmp_path / "run")


def none(history: History, seeds: Sequence[Seed], **_: Any) -> tuple[Choice, ...]:
    """Never anything."""
    return ()


def _one(step: int, mode: Any, subject: str, **terms: object) -> tuple[Choice, ...]:
    return (Choice(step=step, index=0, mode=mode, subject_id=subject, score=1.0, why="by hand", terms=terms),)


def mutating(history: History, seeds: Sequence[Seed], *, step: int, **_: Any) -> tuple[Choice, ...]:
    """A child of nothing."""
    return _one(step, "mutate", seeds[0].id, strategy="second-order", attempt="x")


def hinting(history: History, seeds: Sequence[Seed], *, step: int, **_: Any) -> tuple[Choice, ...]:
    """A hint for what nobody has tried yet."""
    return _one(step, "propose", seeds[0].id, hint=True)


def levelling(history: History, seeds: Sequence[Seed], *, step: int, **_: Any) -> tuple[Choice, ...]:
    """A level that nobody knows."""
    return _one(step, "propose", seeds[0].id, level=3)


def strange(history: History, seeds: Sequence[Seed], *, step: int, **_: Any) -> tuple[Choice, ...]:
    """A task that does not exist."""
    return _one(step, "replay", "no such task")


def peeking(history: History, seeds: Sequence[Seed], *, step: int, **_: Any) -> tuple[Choice, ...]:
    """A held-out seed."""
    return _one(step, "propose", next(seed.id for seed in seeds if seed.split == "held_out"))


def short(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int,
    taken: Collection[str],
) -> tuple[Choice, ...]:
    """One seed a round, named twice."""
    found = uniform(history, seeds, n=1, step=step, seed=seed, first=first, taken=taken)
    return (*found, *found)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (none, "the curriculum chose nothing for step 0"),
        (mutating, "chose task .*, which the ledger does not have"),
        (hinting, "chose a hint to propose on"),
        (levelling, "chose `level`, which game `echo` does not have"),
        (strange, "chose task no such task, which the ledger does not have"),
        (peeking, "which is held out"),
    ],
)
def test_a_choice_that_cannot_be_played_ends_the_run_before_it_is_recorded(
    function: Callable[..., object], message: str, tmp_path: Path, play: Play
) -> None:
    with pytest.raises(RunFailed, match=message):
        play(tmp_path / "run", f"curriculum.choose={__name__}:{function.__name__}", steps=1)
    with Ledger.read(tmp_path / "run") as reader:
        assert reader.choices(0) == ()


def test_a_round_may_be_short(tmp_path: Path, play: Play) -> None:
    sets = (f"curriculum.choose={__name__}:short", "play.min_groups=20", "play.refills=2")
    play(tmp_path / "run", *sets, steps=2)
    with Ledger.read(tmp_path / "run") as reader:
        chosen = reader.choices(1)
        assert [choice.terms.get("round", 0) for choice in chosen] == [choice.index for choice in chosen] == [0, 1, 2]
        assert len(reader.trajectories(1, "propose")) == 3 * 4
        assert [of_round(chosen, refill, n=2) for refill in range(3)] == [(choice,) for choice in chosen]
    whole_of(tmp_path / "run")


def test_rounds_of_a_ledger_without_the_term_go_by_place() -> None:
    placed = [Choice(step=0, index=i, mode="propose", subject_id=str(i), score=1.0, why="") for i in range(4)]
    assert [[choice.index for choice in of_round(placed, refill, n=2)] for refill in range(3)] == [[0, 1], [2, 3], []]


def test_a_ladder_over_the_length_of_words(tmp_path: Path, play: Play) -> None:
    options = 'curriculum.options={level="length", enough=1, unlock=0.0, review=0.0}'
    play(tmp_path / "run", "curriculum.choose=ladder", options, steps=4)
    with Ledger.read(tmp_path / "run") as reader:
        lengths = {seed.id: seed.payload["length"] for seed in reader.seeds()}
        for step in range(4):
            asked = {lengths[choice.subject_id] for choice in reader.choices(step)}
            below = [task for before in range(step) for task in reader.tasks(before)]
            reached = max((lengths[task.seed_id] for task in below), default=0)
            assert max(asked) <= reached + 1
            assert all(choice.terms == {} and "rung" in choice.why for choice in reader.choices(step))
    whole_of(tmp_path / "run")


def test_a_refused_curriculum_leaves_no_run(tmp_path: Path, play: Play) -> None:
    with pytest.raises(UserError, match="asks for strategy `direct`, which game `echo` does not have"):
        play(tmp_path / "run", "curriculum.choose=ladder", steps=1)
    assert not (tmp_path / "run").exists()


def test_a_step_with_too_few_groups_that_teach_changes_nothing(tmp_path: Path, play: Play) -> None:
    said: list[str] = []
    sets = ("play.min_groups=20", "play.refills=1")
    play(tmp_path / "run", *sets, steps=3, observe=lambda event: said.append(str(event.data.get("text", ""))))
    with Ledger.read(tmp_path / "run") as reader:
        found = [sum(group.informative for group in reader.groups(step)) for step in range(3)]
        assert any(found), "no group taught"
        for update in reader.updates("play"):
            of_groups = f"{found[update.step]} of 20 informative groups" if found[update.step] else "no group has"
            assert (update.skipped or "").startswith(of_groups)
            assert update.trajectory_ids == ()
        assert reader.status().policy_version == 0
    assert [text.partition("; ")[2] for text in said if text.startswith("step 0: ")] == ["refilling", "no update"]
    whole_of(tmp_path / "run")


def test_groups_of_a_role_that_does_not_learn_do_not_make_a_step_long_enough(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", 'roles.train=["solver"]', steps=4)
    with Ledger.read(tmp_path / "run") as reader:
        solvers = {solver.role for step in range(4) for solver in reader.groups(step) if "solver" in solver.role}
        for step in range(4):
            rounds = {choice.terms.get("round", 0) for choice in reader.choices(step)}
            taught = any(group.informative and group.role in solvers for group in reader.groups(step))
            assert taught or rounds > {0}, step
