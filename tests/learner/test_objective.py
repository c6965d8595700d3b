"""Each option of the loss changes what it should, through a trainer; the gradients that divergences have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from selfplay.errors import UserError
from selfplay.learner import grpo
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Example, Sample

MakeTrainer = Callable[..., Trainer]
MakeSamples = Callable[..., tuple[Sample, ...]]
MakeBatch = Callable[..., Batch]

EXAMPLES = (Example(role="solver", source="a.py", prompt="say a", replies=("a", "aa")),)


def expected_gradient(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Exact expectation of an estimator's gradient under the policy; the gradients of both divergences."""
    torch.manual_seed(0)
    logits, reference = torch.randn(7, dtype=torch.float64), torch.log_softmax(torch.randn(7, dtype=torch.float64), -1)
    logits.requires_grad_(True)
    logprobs = torch.log_softmax(logits, -1)
    sampled = (logprobs.detach().exp() * grpo.KLS[name](logprobs, reference)).sum()
    reverse = (logprobs.exp() * (logprobs - reference)).sum()
    forward = (reference.exp() * (reference - logprobs)).sum()
    found = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (sampled, reverse, forward)]
    return found[0], found[1], found[2]


def test_as_a_loss_k1_does_nothing_k2_is_right_and_k3_is_the_other_divergence() -> None:
    k1, reverse, _ = expected_gradient("k1")
    assert k1.abs().max() < 1e-12 < 1e-2 < reverse.abs().max()
    k2, reverse, _ = expected_gradient("k2")
    torch.testing.assert_close(k2, reverse, atol=1e-12, rtol=0)
    k3, _, forward = expected_gradient("k3")
    torch.testing.assert_close(k3, forward, atol=1e-12, rtol=0)


def test_the_divergence_is_the_estimator_s(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    """At the reference nothing is added; one update away, the weighed mean of the estimator is."""
    batch, losses = make_batch(), set()
    for name, estimator in grpo.KLS.items():
        trainer, free = make_trainer(kl_coef=0.5, kl_estimator=name), make_trainer()
        trainer.pin_reference()
        reference = trainer.logprobs(batch.samples, temperature=1.0)
        for either in (trainer, free):
            either.imitate(EXAMPLES, index=0, total=1)
        now = trainer.logprobs(batch.samples, temperature=1.0)
        divergence = [
            float(estimator(torch.tensor(new), torch.tensor(old)).sum())
            for new, old in zip(now, reference, strict=True)
        ]
        mean = math.fsum(divergence) / sum(map(len, now))
        found = trainer.update(batch).loss - free.update(batch).loss
        assert found == pytest.approx(0.5 * 0.5 * mean, abs=1e-6), name
        losses.add(round(found, 4))
    assert len(losses) == 3


def test_each_correction_weighs_as_its_formula(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples
) -> None:
    exact = make_trainer().logprobs(make_samples(), temperature=1.0)
    gaps = (0.4, -0.9, 1.2, 0.05)
    samples = []
    for i, (sample, old) in enumerate(zip(make_samples(), exact, strict=True)):
        values = iter(old)
        sampled = tuple(next(values) - gaps[i % 4] if trained else 0.0 for trained in sample.trained)
        samples.append(replace(sample, sampler_logprobs=sampled))
    plain = make_trainer().update(make_batch(samples))
    num_tokens = sum(sum(sample.trained) for sample in samples)
    for name, correction in grpo.CORRECTIONS.items():
        update = make_trainer(correction=name).update(make_batch(samples))
        expected = 0.0
        for sample, old in zip(samples, exact, strict=True):
            sampled = [lp for lp, trained in zip(sample.sampler_logprobs, sample.trained, strict=True) if trained]
            weight_BT = correction(
                torch.tensor([old]), sampler_BT=torch.tensor([sampled]), mask_BT=torch.ones(1, len(old)).bool()
            )
            expected -= 0.5 * sample.advantage * float(weight_BT.sum()) / num_tokens
        assert update.loss == pytest.approx(expected, abs=1e-5), name
        assert update.grad_norm != plain.grad_norm, name


def test_the_horizon_divides(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    near, far = (make_trainer(loss="dr_grpo", horizon=horizon).update(make_batch()) for horizon in (8, 32))
    assert near.loss == pytest.approx(4.0 * far.loss, rel=1e-5)
    assert near.grad_norm == pytest.approx(4.0 * far.grad_norm, rel=1e-5)


def test_the_ramp_slows_the_first_updates(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    trainer = make_trainer(ramp=4)
    trainer.start_phase("play")
    assert [trainer.update(make_batch()).lr for _ in range(5)] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2, 1e-2])


def test_the_clip_decides_where_old_and_new_differ(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    batch = make_batch()
    update = make_trainer(lr=3e-2).update(batch)
    losses = {}
    for low, high in ((0.2, 0.28), (0.01, 0.01), (1.0, 100.0)):
        trainer = make_trainer(lr=3e-2, clip_low=low, clip_high=high)
        trainer.update(batch)
        losses[low, high] = trainer.update(batch, recorded=update).loss
    assert len({round(loss, 5) for loss in losses.values()}) == 3
    assert losses[0.01, 0.01] > losses[0.2, 0.28] > losses[1.0, 100.0], "a tighter clip pays less"


def test_what_a_loss_lacks_is_refused_before_anything_is_played(make_trainer: MakeTrainer) -> None:
    with pytest.raises(UserError, match="no loss `ppo`"):
        make_trainer(loss="ppo")
    with pytest.raises(UserError, match="divides by a constant"):
        make_trainer(loss="dr_grpo")
    with pytest.raises(UserError, match="absolute cap"):
        make_trainer(loss="cispo")
    with pytest.raises(UserError, match="no sampler correction `tis`"):
        make_trainer(correction="tis")
