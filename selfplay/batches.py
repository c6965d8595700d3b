"""From verdicts to groups, and from groups to what the learner sees. Pure.

Advantages are computed inside one group and never across roles. A group whose rewards have no
variance teaches nothing: it is kept, counted and left out of the batch. A truncated reply counts
in its group's statistics but carries no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from selfplay.stages import Played
from selfplay.types import Batch, Group, Sample, Trajectory, Update, Verdict

Advantages = Callable[[Sequence[float]], Sequence[float]]
"""Rewards of one group -> advantages, one a member."""

VARIANCE_FLOOR = 1e-6
"""Rewards closer together than this are the same."""


def groups_of(plays: Iterable[Played], grades: dict[str, Verdict], *, advantages: Advantages) -> tuple[Group, ...]:
    """Groups of the decided plays, in order of first appearance.

    `grades` overrides a trajectory's own verdict (a proposal is paid by its grade).
    """
    members: dict[str, list[tuple[Trajectory, float]]] = {}
    for played in plays:
        verdict = grades.get(played.trajectory.id, played.verdict)
        if verdict.reward is not None:
            members.setdefault(played.trajectory.group_id, []).append((played.trajectory, verdict.reward))
    return tuple(_group(group_id, rows, advantages) for group_id, rows in members.items())


def _group(group_id: str, rows: Sequence[tuple[Trajectory, float]], advantages: Advantages) -> Group:
    rewards = tuple(reward for _, reward in rows)
    informative = len(rows) > 1 and max(rewards) - min(rewards) > VARIANCE_FLOOR
    first = rows[0][0]
    return Group(
        id=group_id,
        step=first.step,
        role=first.role,
        subject_id=first.subject_id,
        trajectory_ids=tuple(trajectory.id for trajectory, _ in rows),
        rewards=rewards,
        advantages=tuple(float(a) for a in advantages(rewards)) if informative else (0.0,) * len(rows),
        informative=informative,
    )


def sample_of(trajectory: Trajectory, *, advantage: float) -> Sample:
    """One trajectory as the learner sees it: only sampled tokens carry loss."""
    trained: list[bool] = []
    logprobs: list[float] = []
    for turn in trajectory.turns:
        trained += [turn.sampled] * len(turn.token_ids)
        logprobs += turn.logprobs if turn.sampled else [0.0] * len(turn.token_ids)
    return Sample(
        trajectory_id=trajectory.id,
        role=trajectory.role,
        group_id=trajectory.group_id,
        token_ids=trajectory.token_ids,
        trained=tuple(trained),
        sampler_logprobs=tuple(logprobs),
        advantage=advantage,
    )


def batch_of(
    step: int,
    plays: Iterable[Played],
    groups: Iterable[Group],
    *,
    train_roles: Collection[str],
    temperature: float,
) -> Batch:
    """The samples of the informative groups of the trained roles, in submission order."""
    advantage = {
        trajectory_id: value
        for group in groups
        if group.informative and group.role in train_roles
        for trajectory_id, value in zip(group.trajectory_ids, group.advantages, strict=True)
    }
    samples = tuple(
        sample_of(played.trajectory, advantage=advantage[played.trajectory.id])
        for played in plays
        if played.trajectory.id in advantage and not played.trajectory.stop.truncated and played.trajectory.num_sampled
    )
    return Batch(step=step, phase="play", samples=samples, temperature=temperature)


def batch_again(update: Update, trajectories: dict[str, Trajectory], *, temperature: float) -> Batch:
    """The batch of a recorded update, for its re-application."""
    samples = tuple(
        sample_of(trajectories[trajectory_id], advantage=advantage)
        for trajectory_id, advantage in zip(update.trajectory_ids, update.advantages, strict=True)
    )
    return Batch(step=update.step, phase="play", samples=samples, temperature=temperature)
