"""Micro-batches role by role, and the norm that each role's gradient has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from selfplay.learner.roles import STRIDE, WHOLE, Meter, last_parts, partition_by_role
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Sample

MakeTrainer = Callable[..., Trainer]
MakeSamples = Callable[..., tuple[Sample, ...]]
MakeBatch = Callable[..., Batch]


def test_no_micro_batch_mixes_roles_and_none_comes_back(make_samples: MakeSamples) -> None:
    samples = make_samples(groups=5, roles=("solver", "proposer"))
    for budget in (1, 40, 4096):
        parts = partition_by_role(samples, range(len(samples)), token_budget=budget)
        assert sorted(member for part in parts for member in part) == list(range(len(samples)))
        assert list(last_parts(samples, parts).values()) == ["solver", "proposer"], "in order of first appearance"
        assert max(last_parts(samples, parts)) == len(parts) - 1


def test_roles_that_mix_or_come_back_have_no_end(make_samples: MakeSamples) -> None:
    samples = make_samples(groups=3, roles=("solver", "proposer"))
    assert last_parts(samples, [(0, 4), (8,)]) == {}
    assert last_parts(samples, [(0,), (4,), (8,)]) == {}
    assert last_parts(samples, [(0, 8), (1,), (4,)]) == {1: "solver", 2: "proposer"}
    assert last_parts(samples, []) == {}


def test_each_role_s_norm_is_that_of_its_gradient_alone(
    make_trainer: MakeTrainer, make_samples: MakeSamples, make_batch: MakeBatch
) -> None:
    samples = make_samples(groups=4, roles=("proposer", "solver"))
    joint = make_trainer(token_budget=40).update(make_batch(samples))
    for role in ("proposer", "solver"):
        own = make_trainer(token_budget=40).update(make_batch([s for s in samples if s.role == role]))
        assert joint.metrics[f"{role}.grad_norm"] == pytest.approx(own.grad_norm, rel=1e-5)
        assert own.metrics[f"{role}.grad_norm"] == own.grad_norm, "alone it is the whole"
    assert "grad_norm" not in joint.metrics


def test_a_recorded_partition_is_used_as_it_is(
    make_trainer: MakeTrainer, make_samples: MakeSamples, make_batch: MakeBatch
) -> None:
    batch = make_batch(make_samples(groups=4, roles=("proposer", "solver")))
    update = make_trainer(token_budget=40).update(batch)
    again = make_trainer(token_budget=40).update(batch, recorded=update)
    assert replace(again, seconds=0.0) == replace(update, seconds=0.0)
    mixed = replace(update, partition=(tuple(range(16)),))
    found = make_trainer().update(batch, recorded=mixed)
    assert found.partition == mixed.partition
    assert not [name for name in found.metrics if name.endswith("grad_norm")], "nothing can be told apart"
    assert found.grad_norm == pytest.approx(update.grad_norm, rel=1e-5)


def sample(role: str) -> Sample:
    return Sample(
        trajectory_id=role,
        role=role,
        group_id=role,
        token_ids=(1, 2),
        trained=(False, True),
        sampler_logprobs=(0.0, -1.0),
        advantage=1.0,
    )


def test_large_parameters_are_looked_at_in_part() -> None:
    torch.manual_seed(0)
    shape = (STRIDE * 64, 2 * WHOLE // (STRIDE * 64) + 1)
    gradients = {"large": torch.zeros(shape), "small": torch.zeros(5)}
    meter = Meter(gradients, samples=[sample("a"), sample("b")], parts=[(0,), (1,)])
    shares: list[dict[str, Tensor]] = []
    for index, scale in enumerate((3.0, 0.01)):
        shares.append({name: scale * torch.randn_like(gradient) for name, gradient in gradients.items()})
        for name, gradient in gradients.items():
            gradient += shares[-1][name]
        meter.after(index)
    for role, share in zip("ab", shares, strict=True):
        exact = math.hypot(*(float(tensor.norm()) for tensor in share.values()))
        assert meter.metrics(0.0)[f"{role}.grad_norm"] == pytest.approx(exact, rel=0.03)
