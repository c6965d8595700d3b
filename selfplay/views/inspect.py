"""What became of a proposal, an attempt, a task or a seed: gathered from the ledger into one record each.

The record holds both sides of the game and the gradient's view: what was decided, what it was worth, and with
which advantage it entered the update.

Not here: how it is printed (`inspect_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfplay.errors import Ambiguous, NotFound
from selfplay.ledger import Reader
from selfplay.types import Group, Seed, Task, Trajectory, Update, Verdict, record

ID_DIGITS = 12
"""How much of an id the screens show; any unique prefix is accepted back."""


@record
class Play:
    """One trajectory and all that is known about it."""

    trajectory: Trajectory
    verdicts: tuple[Verdict, ...]
    """Mint or judge, then grade."""
    advantage: float | None
    """None where it is in no group."""
    informative: bool | None
    """Did its group teach anything?"""
    trained: bool | None
    """Did it enter the update? None while the step is open."""

    @property
    def decision(self) -> Verdict | None:
        """The mint's or the judge's."""
        return next((v for v in self.verdicts if v.stage != "grade"), None)

    @property
    def reward(self) -> float | None:
        """Of the grade for proposals, of the judge for attempts."""
        return next((v.reward for v in reversed(self.verdicts) if v.reward is not None), None)


@record
class Proposal:
    """A proposal, its seed, its task, and what the solvers did with it."""

    play: Play
    seed: Seed | None
    task: Task | None
    attempts: tuple[Play, ...]

    @property
    def solved(self) -> tuple[int, int]:
        """(passed, decided) attempts."""
        decided = [p.decision for p in self.attempts if p.decision is not None and p.decision.passed is not None]
        return sum(bool(v.passed) for v in decided), len(decided)


@record
class StepPlays:
    """Every proposal of one step."""

    step: int
    closed: bool
    proposals: tuple[Proposal, ...]


def step_plays(reader: Reader, step: int) -> StepPlays:
    """The proposals of a step in submission order, with their attempts; the step may be open."""
    groups = reader.groups(step)
    update = reader.update(step)
    seeds = {choice.subject_id: reader.seed(choice.subject_id) for choice in reader.choices(step)}
    decided = reader.verdicts(step, "attempt", "judge")
    attempts: dict[str, list[Play]] = {}
    for attempt in reader.trajectories(step, "attempt"):
        judged = tuple(found[attempt.id] for found in (decided,) if attempt.id in found)
        attempts.setdefault(attempt.subject_id, []).append(_play(attempt, judged, groups, update))
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
            )
        )
    return StepPlays(step=step, closed=step <= reader.last_closed_step(), proposals=tuple(proposals))


def proposal_of(reader: Reader, trajectory: Trajectory) -> Proposal:
    """A proposal with everything that came of it."""
    play = play_of(reader, trajectory)
    decision = play.decision
    task = reader.task(decision.task_id) if decision is not None and decision.task_id is not None else None
    return Proposal(
        play=play,
        seed=reader.seed(trajectory.subject_id),
        task=task,
        attempts=attempts_on(reader, task.id) if task is not None else (),
    )


def attempts_on(reader: Reader, task_id: str) -> tuple[Play, ...]:
    """Every attempt on a task that did not end in a fault, by step and index."""
    return tuple(
        play_of(reader, trajectory)
        for trajectory in reader.trajectories_of(task_id)
        if trajectory.stage == "attempt" and trajectory.fault is None
    )


def play_of(reader: Reader, trajectory: Trajectory) -> Play:
    """A trajectory with its verdicts, its advantage, and whether it was learnt from."""
    verdicts = reader.verdicts_of(trajectory.id)
    return _play(trajectory, verdicts, reader.groups_of(trajectory.id), reader.update(trajectory.step))


def identify(reader: Reader, prefix: str) -> tuple[str, str]:
    """(table, id) of the one trajectory, task or seed whose id begins with `prefix`.

    Raises:
        NotFound: there is none.
        Ambiguous: there are several; the message names them.
    """
    found = reader.by_prefix(prefix, limit=6) if prefix else ()
    exact = [pair for pair in found if pair[1] == prefix]
    if len(found) == 1 or exact:
        return (exact or list(found))[0]
    run = reader.folder.name
    if not found:
        raise NotFound(f"nothing in run `{run}` has an id that begins with `{prefix}`", hint=f"selfplay inspect {run}")
    ids = ", ".join(f"{table[:-1]} {found_id[: len(prefix) + 4]}" for table, found_id in found[:5])
    more = ", ..." if len(found) > 5 else ""
    raise Ambiguous(f"`{prefix}` begins more than one id: {ids}{more}", hint="give more of the id")


def play_data(play: Play, *, content: bool) -> dict[str, Any]:
    """A trajectory as JSON; texts that a model or a repository wrote only where `content` is asked for."""
    trajectory = play.trajectory
    data: dict[str, Any] = {
        "id": trajectory.id,
        "stage": trajectory.stage,
        "step": trajectory.step,
        "role": trajectory.role,
        "subject_id": trajectory.subject_id,
        "index": trajectory.index,
        "stop": str(trajectory.stop),
        "policy_version": list(trajectory.policy_version),
        "sampled_tokens": trajectory.num_sampled,
        "seconds": trajectory.seconds,
        "reward": play.reward,
        "advantage": play.advantage,
        "informative": play.informative,
        "trained": play.trained,
        "verdicts": [verdict_data(verdict, content=content) for verdict in play.verdicts],
    }
    if content:
        data["turns"] = [{"speaker": turn.speaker, "text": turn.text} for turn in trajectory.turns]
    return data


def verdict_data(verdict: Verdict, *, content: bool) -> dict[str, Any]:
    """A verdict as JSON."""
    failing = verdict.evidence.get("failing")
    data: dict[str, Any] = {
        "stage": verdict.stage,
        "valid": verdict.valid,
        "passed": verdict.passed,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "task_id": verdict.task_id,
        "parts": dict(verdict.parts),
        "num_failing": len(failing) if isinstance(failing, list | tuple) else None,
        "seconds": verdict.seconds,
    }
    if content:
        data |= {"why": verdict.why, "evidence": dict(verdict.evidence)}
    return data


def proposal_data(proposal: Proposal, *, content: bool) -> dict[str, Any]:
    """A proposal and its attempts as JSON."""
    passed, decided = proposal.solved
    return {
        **play_data(proposal.play, content=content),
        "seed": seed_data(proposal.seed, content=content) if proposal.seed is not None else None,
        "task_id": proposal.task.id if proposal.task is not None else None,
        "passed": passed,
        "decided": decided,
        "attempts": [play_data(attempt, content=content) for attempt in proposal.attempts],
    }


def seed_data(seed: Seed, *, content: bool) -> dict[str, Any]:
    """A seed as JSON."""
    return {"id": seed.id, "source": seed.source, "split": seed.split, **_payload(seed.payload, content)}


def task_data(task: Task, *, content: bool) -> dict[str, Any]:
    """A task as JSON."""
    head = {"id": task.id, "seed_id": task.seed_id, "split": task.split, "step": task.step, "parent_id": task.parent_id}
    return {**head, **_payload(task.payload, content)}


def _payload(payload: Mapping[str, Any], content: bool) -> dict[str, Any]:
    return {"payload": dict(payload)} if content else {}


def _play(
    trajectory: Trajectory, verdicts: tuple[Verdict, ...], groups: tuple[Group, ...], update: Update | None
) -> Play:
    group = next((group for group in groups if trajectory.id in group.trajectory_ids), None)
    position = group.trajectory_ids.index(trajectory.id) if group is not None else 0
    return Play(
        trajectory=trajectory,
        verdicts=verdicts,
        advantage=group.advantages[position] if group is not None else None,
        informative=group.informative if group is not None else None,
        trained=trajectory.id in update.trajectory_ids if update is not None else None,
    )
