"""What became of a proposal, an attempt, a task or a seed: gathered from the ledger into one record each.

The record holds both sides of the game and the gradient's view: what was decided, what it was worth, and with
which advantage it entered the update.

Not here: how it is printed (`inspect_text`), JSON (`inspect_data`), which of many is worth reading (`inspect_pick`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from selfplay.errors import Ambiguous, NotFound
from selfplay.ledger import Reader, picking
from selfplay.types import Choice, Group, Seed, Task, Trajectory, Verdict, record

ID_DIGITS = 12
"""How much of an id the screens show; any unique prefix is accepted back."""


@record
class Play:
    """One trajectory and all that is known about it."""

    trajectory: Trajectory
    verdicts: tuple[Verdict, ...]
    """Of a proposal mint and grade; of an attempt judge, and mint where it was chosen for a child."""
    advantage: float | None
    """None where it is in no group."""
    informative: bool | None
    """Did its group teach anything?"""
    trained: bool | None
    """Did it enter the update? None while the step is open."""
    hinted: bool = False
    """Did the attempt see a hint?"""

    @property
    def decision(self) -> Verdict | None:
        """The judge's, or the mint's of a proposal."""
        found = {verdict.stage: verdict for verdict in self.verdicts}
        return found.get("judge") or found.get("mint")

    @property
    def child(self) -> Verdict | None:
        """Of an attempt: what was decided about its child; None where none was chosen."""
        mint = next((verdict for verdict in self.verdicts if verdict.stage == "mint"), None)
        return mint if self.trajectory.stage == "attempt" else None

    @property
    def reward(self) -> float | None:
        """Of the grade for proposals, of the judge for attempts."""
        return next((v.reward for v in reversed(self.verdicts) if v.reward is not None), None)

    @property
    def num_trained(self) -> int | None:
        """Tokens that carried loss: the sampled ones of a play that was learnt from. None while the step is open."""
        return None if self.trained is None else self.trajectory.num_sampled * self.trained


@record
class Proposal:
    """A proposal, its seed, its task, and what the solvers did with it."""

    play: Play
    seed: Seed | None
    task: Task | None
    attempts: tuple[Play, ...]
    """The first ones on its task, which say what it is worth."""
    replays: tuple[Play, ...] = ()
    """Those of later steps, and those that saw a hint."""

    @property
    def game(self) -> str:
        """Its name; empty where the seed is not known."""
        return self.seed.game if self.seed is not None else ""

    @property
    def solved(self) -> tuple[int, int]:
        """(passed, decided) first attempts."""
        return _solved(self.attempts)


@record
class Replay:
    """A known task that was attempted again."""

    choice: Choice
    task: Task | None
    attempts: tuple[Play, ...]

    @property
    def hinted(self) -> bool:
        """Did the attempts see a hint?"""
        return bool(self.choice.terms.get("hint"))

    @property
    def solved(self) -> tuple[int, int]:
        """(passed, decided) attempts."""
        return _solved(self.attempts)


@record
class Mutation:
    """A failed attempt that was chosen for a child, and what the solvers did with the child."""

    attempt_id: str
    parent_id: str
    """The task that was attempted."""
    verdict: Verdict | None
    """Of stage `mint`; None where it is owed."""
    task: Task | None
    attempts: tuple[Play, ...]

    @property
    def solved(self) -> tuple[int, int]:
        """(passed, decided) attempts on the child."""
        return _solved(self.attempts)


@record
class StepPlays:
    """Every proposal of one step, every known task that was played again, and every child."""

    step: int
    closed: bool
    proposals: tuple[Proposal, ...]
    replays: tuple[Replay, ...] = ()
    mutations: tuple[Mutation, ...] = ()


class Past:
    """What is asked of each step once, however many of its plays are read."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._learnt: dict[int, frozenset[str] | None] = {}
        self._helped: dict[int, frozenset[str]] = {}

    def learnt(self, step: int) -> frozenset[str] | None:
        """The plays that the step's update learnt from; None while the step is open."""
        if step not in self._learnt:
            self._learnt[step] = self._reader.ask(partial(picking.learnt_from, step=step))
        return self._learnt[step]

    def helped(self, step: int) -> frozenset[str]:
        """The known tasks that the step attempted with a hint."""
        if step not in self._helped:
            self._helped[step] = _helped(self._reader.choices(step))
        return self._helped[step]


def step_plays(reader: Reader, step: int) -> StepPlays:
    """The proposals, replays and children of a step, each in order, with their attempts; the step may be open."""
    groups = reader.groups(step)
    update = Past(reader).learnt(step)
    choices = reader.choices(step)
    seeds = {choice.subject_id: reader.seed(choice.subject_id) for choice in choices}
    decided = reader.verdicts(step, "attempt", "judge")
    helped = _helped(choices)
    attempts: dict[str, list[Play]] = {}
    for attempt in reader.trajectories(step, "attempt"):
        judged = tuple(found[attempt.id] for found in (decided,) if attempt.id in found)
        play = _play(attempt, judged, groups, update, hinted=attempt.subject_id in helped)
        attempts.setdefault(attempt.subject_id, []).append(play)
    measured = _measured(reader, step, update)
    mints, grades = (reader.verdicts(step, "propose", stage) for stage in ("mint", "grade"))
    tasks = {task.id: task for task in reader.tasks(step)}
    proposals = []
    for trajectory in reader.trajectories(step, "propose"):
        verdicts = tuple(found[trajectory.id] for found in (mints, grades) if trajectory.id in found)
        task_id = verdicts[0].task_id if verdicts else None
        task = (tasks.get(task_id) or reader.task(task_id)) if task_id is not None else None
        proposals.append(
            Proposal(
                play=_play(trajectory, verdicts, groups, update),
                seed=seeds.get(trajectory.subject_id) or reader.seed(trajectory.subject_id),
                task=task,
                attempts=tuple(attempts.get(task.id, ())) if task is not None else (),
                replays=tuple(measured.get(task.id, ())) if task is not None else (),
            )
        )
    return StepPlays(
        step=step,
        closed=step <= reader.last_closed_step(),
        proposals=tuple(proposals),
        replays=tuple(
            Replay(choice=one, task=reader.task(one.subject_id), attempts=tuple(attempts.get(one.subject_id, ())))
            for one in choices
            if one.mode == "replay"
        ),
        mutations=tuple(_mutation(reader, one, attempts) for one in choices if one.mode == "mutate"),
    )


def _measured(reader: Reader, step: int, update: Collection[str] | None) -> dict[str, list[Play]]:
    """New task of the step -> its attempts that only served to see what a hint is worth."""
    tasks = {task.id for task in reader.tasks(step)}
    judged = reader.verdicts(step, "evaluate", "judge")
    found: dict[str, list[Play]] = {}
    for attempt in reader.trajectories(step, "evaluate"):
        if attempt.subject_id in tasks:
            verdicts = (judged[attempt.id],) if attempt.id in judged else ()
            found.setdefault(attempt.subject_id, []).append(_play(attempt, verdicts, (), update, hinted=True))
    return found


def _mutation(reader: Reader, choice: Choice, attempts: Mapping[str, Sequence[Play]]) -> Mutation:
    name = str(choice.terms.get("attempt", ""))
    verdict = next((verdict for verdict in reader.verdicts_of(name) if verdict.stage == "mint"), None)
    task = reader.task(verdict.task_id) if verdict is not None and verdict.task_id is not None else None
    return Mutation(
        attempt_id=name,
        parent_id=choice.subject_id,
        verdict=verdict,
        task=task,
        attempts=tuple(attempts.get(task.id, ())) if task is not None else (),
    )


def _solved(attempts: Sequence[Play]) -> tuple[int, int]:
    decided = [p.decision for p in attempts if p.decision is not None and p.decision.passed is not None]
    return sum(bool(v.passed) for v in decided), len(decided)


def proposal_of(reader: Reader, trajectory: Trajectory) -> Proposal:
    """A proposal with everything that came of it; its task's first attempts and later ones apart."""
    past = Past(reader)
    play = play_of(reader, trajectory, past=past)
    decision = play.decision
    task = reader.task(decision.task_id) if decision is not None and decision.task_id is not None else None
    attempts = attempts_on(reader, task.id, past=past) if task is not None else ()
    first = tuple(one for one in attempts if one.trajectory.step == trajectory.step and not one.hinted)
    return Proposal(
        play=play,
        seed=reader.seed(trajectory.subject_id),
        task=task,
        attempts=first,
        replays=tuple(one for one in attempts if one not in first),
    )


def attempts_on(reader: Reader, task_id: str, *, past: Past | None = None) -> tuple[Play, ...]:
    """Every attempt on a task that did not end in a fault, by step and index.

    Of a task of play also those that only served to see what a hint is worth (stage `evaluate`).
    """
    task = reader.task(task_id)
    stages = {"attempt", *(["evaluate"] if task is not None and task.step >= 0 else [])}
    past = past or Past(reader)
    return tuple(
        play_of(reader, trajectory, past=past)
        for trajectory in reader.trajectories_of(task_id)
        if trajectory.stage in stages and trajectory.fault is None
    )


def play_of(reader: Reader, trajectory: Trajectory, *, past: Past | None = None) -> Play:
    """A trajectory with its verdicts, its advantage, and whether it was learnt from."""
    past = past or Past(reader)
    verdicts, groups = reader.verdicts_of(trajectory.id), reader.groups_of(trajectory.id)
    task = reader.task(trajectory.subject_id) if trajectory.stage == "evaluate" else None
    helped = trajectory.stage == "attempt" and trajectory.subject_id in past.helped(trajectory.step)
    # note: a task of play is evaluated for one reason only, to see what a hint is worth.
    hinted = helped or (task is not None and task.step >= 0)
    return _play(trajectory, verdicts, groups, past.learnt(trajectory.step), hinted=hinted)


def _helped(choices: Sequence[Choice]) -> frozenset[str]:
    """The known tasks that a step attempted with a hint."""
    return frozenset(one.subject_id for one in choices if one.mode == "replay" and one.terms.get("hint"))


def origin_of(reader: Reader, task: Task) -> Trajectory | None:
    """The proposal that minted a task, or the failed attempt that it is a child of; None for a given task."""
    return reader.trajectories_by_id([task.parent_id]).get(task.parent_id) if task.parent_id is not None else None


def identify(reader: Reader, prefix: str, *, table: str | None = None) -> tuple[str, str]:
    """(table, id) of the one trajectory, task or seed (of `table` where one is named) whose id begins with `prefix`.

    Raises:
        NotFound: there is none.
        Ambiguous: there are several; the message names them.
    """
    found = reader.by_prefix(prefix, limit=6 if table is None else 50) if prefix else ()
    found = tuple(pair for pair in found if table in (None, pair[0]))[:6]
    exact = [pair for pair in found if pair[1] == prefix]
    if len(found) == 1 or exact:
        return (exact or list(found))[0]
    run = reader.folder.name
    if not found:
        what = "nothing" if table is None else f"no {table[:-1]}"
        raise NotFound(f"{what} in run `{run}` has an id that begins with `{prefix}`", hint=f"selfplay inspect {run}")
    ids = ", ".join(f"{table[:-1]} {found_id[: len(prefix) + 4]}" for table, found_id in found[:5])
    more = ", ..." if len(found) > 5 else ""
    raise Ambiguous(f"`{prefix}` begins more than one id: {ids}{more}", hint="give more of the id")


def _play(
    trajectory: Trajectory,
    verdicts: tuple[Verdict, ...],
    groups: tuple[Group, ...],
    learnt: Collection[str] | None,
    *,
    hinted: bool = False,
) -> Play:
    group = next((group for group in groups if trajectory.id in group.trajectory_ids), None)
    position = group.trajectory_ids.index(trajectory.id) if group is not None else 0
    return Play(
        trajectory=trajectory,
        verdicts=verdicts,
        advantage=group.advantages[position] if group is not None else None,
        informative=group.informative if group is not None else None,
        trained=trajectory.id in learnt if learnt is not None else None,
        hinted=hinted,
    )
