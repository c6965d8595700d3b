"""Groups hold decided rewards only; the batch holds what is informative, trained and not truncated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from selfplay.batches import batch_again, batch_of, groups_of, sample_of
from selfplay.stages import Played
from selfplay.types import Batch, Stop, Trajectory, Turn, Update, Verdict


def centred(rewards: Sequence[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def played(
    name: str, reward: float | None, *, subject: str = "s", role: str = "solver", stop: Stop = Stop.DONE
) -> Played:
    trajectory = Trajectory(
        id=name,
        step=0,
        stage="attempt",
        role=role,
        subject_id=subject,
        index=0,
        turns=(
            Turn(speaker="prompt", token_ids=(1, 2)),
            Turn(speaker="policy", token_ids=(3, 4), logprobs=(-0.5, -0.25)),
            Turn(speaker="tool", token_ids=(5,)),
            Turn(speaker="policy", token_ids=(6,), logprobs=(-1.0,)),
        ),
        stop=stop,
        policy_version=(0, 0),
    )
    verdict = Verdict(trajectory_id=name, stage="judge", valid=True, passed=None, reward=reward, reason="r", why="w")
    return Played(trajectory=trajectory, verdict=verdict)


def batch(plays: Sequence[Played], **changes: object) -> Batch:
    groups = groups_of(plays, {}, advantages=centred)
    return batch_of(0, plays, groups, train_roles=("solver",), temperature=1.0)


def test_a_group_is_the_decided_siblings() -> None:
    (group,) = groups_of([played("a", 1.0), played("b", None), played("c", -1.0)], {}, advantages=centred)
    assert group.trajectory_ids == ("a", "c")
    assert group.rewards == (1.0, -1.0)
    assert group.advantages == (1.0, -1.0)
    assert group.informative


@pytest.mark.parametrize("rewards", [(1.0,), (0.5, 0.5, 0.5), (0.5, 0.5 + 1e-9)])
def test_no_variance_teaches_nothing(rewards: Sequence[float]) -> None:
    plays = [played(str(i), reward) for i, reward in enumerate(rewards)]
    (group,) = groups_of(plays, {}, advantages=centred)
    assert not group.informative
    assert set(group.advantages) == {0.0}
    assert batch(plays).samples == ()


def test_groups_do_not_mix_roles_or_subjects() -> None:
    plays = [played("a", 1.0), played("b", 0.0, subject="t"), played("c", 0.0, role="proposer")]
    assert len(groups_of(plays, {}, advantages=centred)) == 3


def test_a_grade_overrides_the_verdict() -> None:
    plays = [played("a", None), played("b", None)]
    grades = {name: played(name, reward).verdict for name, reward in (("a", 1.0), ("b", 0.0))}
    (group,) = groups_of(plays, grades, advantages=centred)
    assert group.rewards == (1.0, 0.0)


def test_only_sampled_tokens_are_trained() -> None:
    sample = sample_of(played("a", 1.0).trajectory, advantage=0.5)
    assert sample.token_ids == (1, 2, 3, 4, 5, 6)
    assert sample.trained == (False, False, True, True, False, True)
    assert sample.sampler_logprobs == (0.0, 0.0, -0.5, -0.25, 0.0, -1.0)


def test_a_truncated_reply_counts_in_its_group_but_carries_no_loss() -> None:
    plays = [played("a", 1.0), played("b", -1.0, stop=Stop.TOKENS)]
    (group,) = groups_of(plays, {}, advantages=centred)
    assert group.rewards == (1.0, -1.0)
    assert [s.trajectory_id for s in batch(plays).samples] == ["a"]


def test_roles_that_do_not_train_are_left_out() -> None:
    plays = [played("a", 1.0, role="proposer"), played("b", 0.0, role="proposer")]
    assert batch(plays).samples == ()


def test_a_recorded_update_gives_the_same_batch_again() -> None:
    plays = [played("a", 1.0), played("b", 0.0)]
    first = batch(plays)
    update = Update(
        step=0,
        phase="play",
        policy_version=1,
        trajectory_ids=tuple(s.trajectory_id for s in first.samples),
        advantages=tuple(s.advantage for s in first.samples),
        partition=(),
        old_logprobs=(),
        lr=0.1,
        weights_digest="",
        reference_digest=None,
        fingerprint="",
        loss=0.0,
        grad_norm=0.0,
        tokens=6,
        seconds=0.0,
    )
    assert batch_again(update, {p.trajectory.id: p.trajectory for p in plays}, temperature=1.0) == first
