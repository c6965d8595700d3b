"""Groups hold decided rewards only; the batch holds what is informative, trained and not truncated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.audit import audit
from selfplay.batches import batch_again, batch_of, cells_of, groups_of, sample_of, stale
from selfplay.errors import RunFailed
from selfplay.learner.batch import informative
from selfplay.learner.estimators import ESTIMATORS, Estimator, by_group
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.replay import replay
from selfplay.stages import Played
from selfplay.types import Batch, Group, Seed, Stage, Stop, Trajectory, Turn, Update, Verdict, digest


def centred(rewards: Sequence[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def grouped(
    plays: Sequence[Played],
    grades: Mapping[str, Verdict] | None = None,
    *,
    estimator: str | Estimator | None = None,
    past: Mapping[str, Sequence[float]] | None = None,
    cells: Mapping[str, str] | None = None,
) -> tuple[Group, ...]:
    found = by_group(centred) if estimator is None else estimator
    return groups_of(
        plays,
        grades or {},
        estimator=ESTIMATORS[found] if isinstance(found, str) else found,
        past=lambda role, number: (past or {}).get(role, ())[-number:],
        cells=cells or {},
    )


def played(
    name: str,
    reward: float | None,
    *,
    subject: str = "s",
    role: str = "solver",
    stop: Stop = Stop.DONE,
    stage: Stage = "attempt",
) -> Played:
    trajectory = Trajectory(
        id=name,
        step=0,
        stage=stage,
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


def batch(plays: Sequence[Played]) -> Batch:
    return batch_of(0, plays, grouped(plays), train_roles=("solver",), temperature=1.0)


def test_a_group_is_the_decided_siblings() -> None:
    (group,) = grouped([played("a", 1.0), played("b", None), played("c", -1.0)])
    assert group.trajectory_ids == ("a", "c")
    assert group.rewards == (1.0, -1.0)
    assert group.advantages == (1.0, -1.0)
    assert group.informative


@pytest.mark.parametrize("rewards", [(1.0,), (0.5, 0.5, 0.5), (0.5, 0.5 + 1e-9)])
def test_no_variance_teaches_nothing(rewards: Sequence[float]) -> None:
    plays = [played(str(i), reward) for i, reward in enumerate(rewards)]
    (group,) = grouped(plays)
    assert not group.informative
    assert set(group.advantages) == {0.0}
    assert batch(plays).samples == ()


def test_groups_do_not_mix_roles_or_subjects() -> None:
    plays = [played("a", 1.0), played("b", 0.0, subject="t"), played("c", 0.0, role="proposer")]
    assert len(grouped(plays)) == 3


def test_a_grade_overrides_the_verdict() -> None:
    plays = [played("a", None), played("b", None)]
    grades = {name: played(name, reward).verdict for name, reward in (("a", 1.0), ("b", 0.0))}
    (group,) = grouped(plays, grades)
    assert group.rewards == (1.0, 0.0)


def test_only_sampled_tokens_are_trained() -> None:
    sample = sample_of(played("a", 1.0).trajectory, advantage=0.5, group_id="g")
    assert sample.group_id == "g"
    assert sample.token_ids == (1, 2, 3, 4, 5, 6)
    assert sample.trained == (False, False, True, True, False, True)
    assert sample.sampler_logprobs == (0.0, 0.0, -0.5, -0.25, 0.0, -1.0)


def test_a_truncated_reply_counts_in_its_group_but_carries_no_loss() -> None:
    plays = [played("a", 1.0), played("b", -1.0, stop=Stop.TOKENS)]
    (group,) = grouped(plays)
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
    assert batch_again(update, {p.trajectory.id: p.trajectory for p in plays}, grouped(plays), temperature=1.0) == first


def test_a_group_of_one_is_served_by_estimators_that_compare_with_something_else() -> None:
    alone = [played("a", 0.5), played("b", 0.5, subject="t"), played("c", -0.5, subject="u")]
    for name, expected in {
        "grpo": [0.0, 0.0, 0.0],
        "dr_grpo": [0.0, 0.0, 0.0],
        "rloo": [0.0, 0.0, 0.0],
        "batch_std": [0.0, 0.0, 0.0],
        "raw": [0.5, 0.5, -0.5],
        "spiral": [0.5 - 0.05, 0.5 - 0.05, -0.5 - 0.05],
        "dr_mas": [0.5773492692, 0.5773492692, -1.1546985384],
    }.items():
        groups = grouped(alone, estimator=name, past={"solver": (1.0,), "proposer": (9.0,)})
        assert [a for group in groups for a in group.advantages] == pytest.approx(expected, abs=1e-6), name
        assert [group.informative for group in groups] == [value != 0.0 for value in expected], name
        found = batch_of(0, alone, groups, train_roles=("solver",), temperature=1.0)
        assert len(found.samples) == sum(value != 0.0 for value in expected), name


def test_roles_do_not_share_statistics() -> None:
    plays = [played("a", 1.0), played("b", 0.0)]
    rich = [played("c", 100.0, role="proposer"), played("d", 90.0, role="proposer")]
    past = {"solver": (0.5,), "proposer": (50.0,)}
    for name in ESTIMATORS:
        alone, joint = grouped(plays, estimator=name, past=past), grouped([*plays, *rich], estimator=name, past=past)
        assert joint[0] == alone[0], name


def seed(name: str, **payload: object) -> Seed:
    return Seed(id=name, game="echo", source=name, payload=payload, split="train")


def test_proposals_that_play_once_are_grouped_by_cell() -> None:
    seeds = [seed("s", strategy="remove", hop=2), seed("t", strategy="remove", hop=2), seed("u", hop=1), seed("v")]
    assert cells_of(seeds, proposals=2) == {}
    cells = cells_of(seeds, proposals=1)
    assert cells == {"s": "cell:remove/2", "t": "cell:remove/2", "u": "cell:/1", "v": "cell:/0"}
    plays = [
        played(name, reward, subject=name, role="proposer", stage="propose")
        for name, reward in (("s", 1.0), ("t", 0.0), ("u", 1.0), ("v", 0.0))
    ]
    groups = grouped([*plays, played("x", 1.0, subject="s")], cells=cells)
    assert [(g.subject_id, g.rewards) for g in groups] == [
        ("cell:remove/2", (1.0, 0.0)),
        ("cell:/1", (1.0,)),
        ("cell:/0", (0.0,)),
        ("s", (1.0,)),
    ], "attempts have no cell"
    assert groups[0].id == digest("group", 0, "propose", "proposer", "cell:remove/2")
    assert [group.informative for group in groups] == [True, False, False, False]


def test_a_member_at_its_cell_s_mean_still_counts() -> None:
    plays = [
        played(name, reward, subject=name, role="proposer", stage="propose")
        for name, reward in (("s", 1.0), ("t", 0.5), ("u", 0.0))
    ]
    groups = grouped(plays, cells=cells_of([seed("s"), seed("t"), seed("u")], proposals=1))
    found = batch_of(0, plays, groups, train_roles=("proposer",), temperature=1.0)
    assert {sample.group_id for sample in found.samples} == {groups[0].id}
    assert [sample.advantage for sample in found.samples] == [0.5, 0.0, -0.5]
    assert informative(found.samples) == [0, 1, 2]


def test_what_is_older_than_allowed_is_left_out_and_counted() -> None:
    fresh, old = played("a", 1.0), played("b", -1.0)
    old = replace(old, trajectory=replace(old.trajectory, policy_version=(3, 5)))
    fresh = replace(fresh, trajectory=replace(fresh.trajectory, policy_version=(4, 5)))
    plays = [fresh, old]
    found = batch_of(0, plays, grouped(plays), train_roles=("solver",), temperature=1.0, oldest=4)
    assert [sample.trajectory_id for sample in found.samples] == ["a"]
    assert stale(plays, oldest=4) == {"b"}
    assert stale(plays, oldest=3) == set()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(RunFailed, match=rf"the reward of trajectory b .* is not finite: {bad}"):
        grouped([played("a", 1.0), played("b", bad)])
    with pytest.raises(RunFailed, match=rf"the advantage of trajectory a .* is not finite: {bad}"):
        grouped([played("a", 1.0), played("b", 0.0)], estimator=by_group(lambda rewards: [bad] * len(rewards)))


def test_an_estimator_gives_one_advantage_a_reward() -> None:
    with pytest.raises(RunFailed, match="role `solver` one advantage a reward"):
        grouped([played("a", 1.0), played("b", 0.0)], estimator=by_group(lambda rewards: [1.0]))


def test_nothing_decided_is_no_group() -> None:
    for name in ESTIMATORS:
        assert grouped([], estimator=name) == grouped([played("a", None)], estimator=name) == ()


@pytest.mark.parametrize("estimator", ["spiral", "dr_mas"])
def test_a_run_records_what_its_estimator_gives_and_gives_it_again(
    tmp_path: Path, play: Callable[..., object], project: Project, estimator: str
) -> None:
    """Proposals play once, in cells; the second launch knows the baseline of the first from the ledger alone."""
    sets = (f"learner.estimator={estimator}", "play.proposals=1")
    folder = tmp_path / "cut"
    play(folder, *sets, steps=2)
    play(folder, *sets, steps=4)
    with Ledger.read(folder) as ledger:
        for step in range(4):
            groups = ledger.groups(step)
            for role in {group.role for group in groups}:
                own = [group for group in groups if group.role == role]
                past = [r for s in range(step) for g in ledger.groups(s) if g.role == role for r in g.rewards]
                assert list(ledger.past_rewards(step, role, 1024)) == past
                expected = ESTIMATORS[estimator].of_role([group.rewards for group in own], past)
                assert [group.advantages for group in own] == [tuple(values) for values in expected]
            assert [g.subject_id for g in groups if g.role.endswith("proposer")] == ["cell:/0"]
            update = ledger.update(step)
            assert update is not None
            advantages = {t: a for g in groups for t, a in zip(g.trajectory_ids, g.advantages, strict=True)}
            assert update.advantages == tuple(advantages[t] for t in update.trajectory_ids)
        digests = ledger.comparable()
    assert [problem for checked in audit(folder) for problem in checked.problems] == []
    assert replay(folder, 3, project=project, say=lambda text: None).equal
    if estimator == "spiral":
        play(tmp_path / "whole", *sets, steps=4)
        with Ledger.read(tmp_path / "whole") as ledger:
            assert ledger.comparable() == digests
