"""Metrics on hand-made numbers."""

from __future__ import annotations

import math

import pytest
import torch

from selfplay.learner.tally import Seen, imitation_metrics, play_metrics, trained_values
from selfplay.types import Sample


def sample(role: str, advantage: float) -> Sample:
    return Sample(
        trajectory_id="t",
        role=role,
        group_id="g",
        token_ids=(5, 6, 7),
        trained=(False, True, True),
        sampler_logprobs=(0.0, -1.0, -2.0),
        advantage=advantage,
    )


def seen(*, old: tuple[float, float], now: tuple[float, float]) -> Seen:
    return Seen(
        logprob_T=torch.tensor(now),
        old_T=torch.tensor(old),
        entropy_T=torch.tensor([1.0, 3.0]),
        loss_T=torch.tensor([0.5, 1.5]),
    )


def test_play_metrics() -> None:
    samples = [sample("solver", 1.0), sample("proposer", -1.0), sample("solver", 0.0)]
    found = {
        0: seen(old=(-1.0, -2.0), now=(-1.0, -1.0)),
        1: seen(old=(-1.5, -2.0), now=(-1.5, -1.0)),
    }
    metrics = play_metrics(samples, found, clip_low=0.2, clip_high=0.28)
    assert trained_values(samples[0]) == (-1.0, -2.0)
    assert (metrics["zero_variance"], metrics["untrained"]) == (1, 0)
    assert (metrics["loss"], metrics["entropy"], metrics["tokens"]) == (1.0, 2.0, 4.0)
    assert metrics["sampler_gap"] == pytest.approx(0.125)
    assert metrics["sampler_ratio_max"] == 1.0
    assert metrics["proposer.sampler_ratio_max"] == pytest.approx(1.0)
    assert metrics["proposer.sampler_kl"] == pytest.approx((math.exp(-0.5) + 0.5 - 1.0) / 2)
    # The ratio rose for a good reply (clipped away) and for a bad one (not clipped).
    assert (metrics["solver.clip_fraction"], metrics["proposer.clip_fraction"]) == (0.5, 0.0)


def test_imitation_metrics_are_by_role() -> None:
    metrics = imitation_metrics([sample("solver", 1.0)], {0: seen(old=(0.0, 0.0), now=(0.0, 0.0))})
    assert metrics == {
        "loss": 1.0,
        "entropy": 2.0,
        "tokens": 2.0,
        "solver.loss": 1.0,
        "solver.entropy": 2.0,
        "solver.tokens": 2.0,
    }
