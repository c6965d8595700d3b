"""From verdicts to groups, and from groups to what the learner sees. Pure.

Attempts on one task form a group, and so do proposals on one seed; proposals that play once are grouped by
cell (`cells_of`). Advantages never mix roles. A group that teaches nothing is kept, counted and left out
of the batch. A truncated reply counts in its group's statistics but carries no loss.

Not here: the formulas (`learner.estimators`), what a play is worth (`games`, `loop.grade`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from selfplay.errors import RunFailed
from selfplay.learner.estimators import Estimator, has_variance
from selfplay.stages import Played
from selfplay.types import Batch, Group, Sample, Seed, Trajectory, Update, Verdict, digest

Past = Callable[[str, int], Sequence[float]]
"""(role, number) -> at most that many of the role's newest rewards of closed steps, oldest first."""

CELL = "cell:"
"""What the subject of a group of proposals on several seeds starts with."""


def cells_of(seeds: Iterable[Seed], *, proposals: int) -> dict[str, str]:
    """Seed id -> `cell:STRATEGY/HOP`, its cell; empty where a seed is proposed on several times.

    `strategy` (text) and `hop` (whole number) are the seed's payload; where it has none they are empty and 0.
    Source: groups by strategy (AZR's task-relative baseline, arXiv 2505.03335) and by hop (Dr. Zero).
    """
    if proposals > 1:
        return {}
    cells = {}
    for seed in seeds:
        strategy, hop = seed.payload.get("strategy"), seed.payload.get("hop")
        cells[seed.id] = f"{CELL}{'' if strategy is None else strategy}/{0 if hop is None else hop}"
    return cells


def groups_of(
    plays: Iterable[Played],
    grades: Mapping[str, Verdict],
    *,
    estimator: Estimator,
    past: Past,
    cells: Mapping[str, str],
) -> tuple[Group, ...]:
    """Groups of the decided plays, in order of first appearance.

    `grades` overrides a trajectory's own verdict (a proposal is paid by its grade); `cells` are those of the seeds.

    Raises:
        RunFailed: a reward or an advantage is not finite, or the estimator gives more or fewer than there are rewards.
    """
    members: dict[tuple[str, str], list[tuple[Trajectory, float]]] = {}
    for played in plays:
        verdict = grades.get(played.trajectory.id, played.verdict)
        if verdict.reward is not None:
            _refuse(played.trajectory, verdict.reward, what="reward")
            members.setdefault(_place(played.trajectory, cells), []).append((played.trajectory, verdict.reward))
    bare = [_bare(group_id, subject_id, rows) for (group_id, subject_id), rows in members.items()]
    worth: dict[str, tuple[float, ...]] = {}
    for role in dict.fromkeys(group.role for group in bare):
        worth |= _worth(role, [group for group in bare if group.role == role], estimator, past)
    for (group_id, _), rows in members.items():
        for (trajectory, _), advantage in zip(rows, worth[group_id], strict=True):
            _refuse(trajectory, advantage, what="advantage")
    return tuple(
        replace(group, advantages=worth[group.id], informative=group.informative or any(worth[group.id]))
        for group in bare
    )


def _worth(role: str, groups: Sequence[Group], estimator: Estimator, past: Past) -> dict[str, tuple[float, ...]]:
    """Group id -> advantages, for all groups of one role."""
    estimator = estimator.by_role.get(role, estimator)
    earlier = past(role, estimator.past) if estimator.past else ()
    found = estimator.of_role([group.rewards for group in groups], earlier)
    if [len(values) for values in found] != [len(group.rewards) for group in groups]:
        raise RunFailed(f"the estimator did not give role `{role}` one advantage a reward", hint=_ESTIMATOR_HINT)
    return {group.id: tuple(map(float, values)) for group, values in zip(groups, found, strict=True)}


_ESTIMATOR_HINT = "look at learner.estimator: selfplay config"


def _place(trajectory: Trajectory, cells: Mapping[str, str]) -> tuple[str, str]:
    """Id and subject of the group that a play belongs to."""
    cell = cells.get(trajectory.subject_id) if trajectory.stage == "propose" else None
    if cell is None:
        return trajectory.group_id, trajectory.subject_id
    return digest("group", trajectory.step, trajectory.stage, trajectory.role, cell), cell


def _bare(group_id: str, subject_id: str, rows: Sequence[tuple[Trajectory, float]]) -> Group:
    """The group without advantages."""
    rewards = tuple(reward for _, reward in rows)
    return Group(
        id=group_id,
        step=rows[0][0].step,
        role=rows[0][0].role,
        subject_id=subject_id,
        trajectory_ids=tuple(trajectory.id for trajectory, _ in rows),
        rewards=rewards,
        advantages=(),
        informative=has_variance(rewards),
    )


def _refuse(trajectory: Trajectory, value: float, *, what: str) -> None:
    if not math.isfinite(value):
        where = f"trajectory {trajectory.id} (step {trajectory.step}, {trajectory.role})"
        hint = f"look at rewards.{'proposer' if trajectory.stage == 'propose' else 'solver'}: selfplay config"
        raise RunFailed(
            f"the {what} of {where} is not finite: {value}", hint=hint if what == "reward" else _ESTIMATOR_HINT
        )


def sample_of(trajectory: Trajectory, *, advantage: float, group_id: str) -> Sample:
    """One trajectory as the learner sees it: only sampled tokens carry loss."""
    trained: list[bool] = []
    logprobs: list[float] = []
    for turn in trajectory.turns:
        trained += [turn.sampled] * len(turn.token_ids)
        logprobs += turn.logprobs if turn.sampled else [0.0] * len(turn.token_ids)
    return Sample(
        trajectory_id=trajectory.id,
        role=trajectory.role,
        group_id=group_id,
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
    oldest: int = 0,
) -> Batch:
    """The samples of the informative groups of the trained roles, in submission order.

    What was sampled by weights before version `oldest` is left out: no correction is meant to reach so far.
    """
    plays = list(plays)
    left_out = stale(plays, oldest=oldest)
    place = {
        trajectory_id: (value, group.id)
        for group in groups
        if group.informative and group.role in train_roles
        for trajectory_id, value in zip(group.trajectory_ids, group.advantages, strict=True)
    }
    samples = tuple(
        sample_of(played.trajectory, advantage=place[played.trajectory.id][0], group_id=place[played.trajectory.id][1])
        for played in plays
        if played.trajectory.id in place
        and played.trajectory.id not in left_out
        and not played.trajectory.stop.truncated
        and played.trajectory.num_sampled
    )
    return Batch(step=step, phase="play", samples=samples, temperature=temperature)


def stale(plays: Iterable[Played], *, oldest: int) -> set[str]:
    """Trajectories of which a token was sampled by weights before version `oldest`."""
    return {
        played.trajectory.id
        for played in plays
        if played.trajectory.num_sampled and played.trajectory.policy_version[0] < oldest
    }


def batch_again(
    update: Update, trajectories: Mapping[str, Trajectory], groups: Iterable[Group], *, temperature: float
) -> Batch:
    """The batch of a recorded update, for its re-application; `groups` are those of its step."""
    group_ids = {trajectory_id: group.id for group in groups for trajectory_id in group.trajectory_ids}
    samples = tuple(
        sample_of(trajectories[trajectory_id], advantage=advantage, group_id=group_ids[trajectory_id])
        for trajectory_id, advantage in zip(update.trajectory_ids, update.advantages, strict=True)
    )
    return Batch(step=update.step, phase="play", samples=samples, temperature=temperature)
