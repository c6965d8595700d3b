"""Every value of the golden file (two independent public implementations), and what the formulas promise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from selfplay.errors import UserError
from selfplay.learner import grpo

GOLDEN = json.loads((Path(__file__).parent / "golden_grpo.json").read_text())
INPUTS = GOLDEN["inputs"]


def tensor(name: str) -> Tensor:
    return torch.tensor(INPUTS[name], dtype=torch.float64)


def mask() -> Tensor:
    return torch.arange(4)[None, :] < torch.tensor(INPUTS["lengths"])[:, None]


def loss_and_gradient(
    token_loss: grpo.TokenLoss,
    reduction: grpo.Reduction,
    *,
    clip: tuple[float, float] = (0.2, 0.28),
    correction: grpo.Correction | None = None,
    kl_coef: float = 0.0,
) -> tuple[float, float]:
    logprobs_BT = tensor("lp").requires_grad_(True)
    tokens = grpo.Tokens(
        logprobs_BT=logprobs_BT, old_BT=tensor("old"), mask_BT=mask(), advantage_B=tensor("advantages_for_losses")
    )
    loss_BT = token_loss(tokens, clip_low=clip[0], clip_high=clip[1])
    if correction:
        loss_BT = loss_BT * correction(tensor("old"), sampler_BT=tensor("roll"), mask_BT=mask())
    if kl_coef:
        loss_BT = loss_BT + kl_coef * grpo.k3(logprobs_BT, tensor("ref"))
    loss = grpo.total(loss_BT, mask_BT=mask(), weight_B=reduction(torch.tensor(INPUTS["lengths"])))
    (gradient,) = torch.autograd.grad(loss, logprobs_BT)
    return loss.item(), gradient.abs().sum().item()


GOLDEN_LOSSES: dict[str, Callable[[], tuple[float, float]]] = {
    "DAPO token mean, clip 0.2/0.28": lambda: loss_and_gradient(grpo.clipped, grpo.token_mean),
    "sequence mean of token mean, clip 0.2/0.28": lambda: loss_and_gradient(grpo.clipped, grpo.sequence_mean),
    "sequence mean of token mean, clip 0.2/0.2": lambda: loss_and_gradient(
        grpo.clipped, grpo.sequence_mean, clip=(0.2, 0.2)
    ),
    "Dr. GRPO, constant denominator 8, clip 0.2/0.28": lambda: loss_and_gradient(
        grpo.clipped, partial(grpo.constant, horizon=8)
    ),
    "GSPO, clip 3e-4/4e-4": lambda: loss_and_gradient(grpo.gspo, grpo.sequence_mean, clip=(3e-4, 4e-4)),
    "CISPO, cap 5": lambda: loss_and_gradient(grpo.cispo, grpo.token_mean, clip=(1.0, 5.0)),
    "DAPO with token truncated importance sampling, cap 2": lambda: loss_and_gradient(
        grpo.clipped, grpo.token_mean, correction=grpo.token_truncated
    ),
    "DAPO with sequence truncated importance sampling, cap 2": lambda: loss_and_gradient(
        grpo.clipped, grpo.token_mean, correction=grpo.sequence_truncated
    ),
    "DAPO with IcePop 0.5..2": lambda: loss_and_gradient(grpo.clipped, grpo.token_mean, correction=grpo.icepop),
    "DAPO with sequence mask, cap 3": lambda: loss_and_gradient(
        grpo.clipped, grpo.token_mean, correction=grpo.sequence_masked
    ),
    "DAPO with k3 KL 0.04": lambda: loss_and_gradient(grpo.clipped, grpo.token_mean, kl_coef=0.04),
}


def test_no_golden_loss_is_left_out() -> None:
    assert set(GOLDEN_LOSSES) == set(GOLDEN["losses"])


@pytest.mark.parametrize("name", GOLDEN_LOSSES)
def test_losses_and_gradients_match(name: str) -> None:
    loss, gradient = GOLDEN_LOSSES[name]()
    assert loss == pytest.approx(GOLDEN["losses"][name]["loss"], abs=1e-8, rel=0)
    assert gradient == pytest.approx(GOLDEN["losses"][name]["grad_abs_sum"], abs=1e-8, rel=0)


def test_the_dual_clip_of_verl_agrees_where_no_ratio_reaches_it() -> None:
    expected = GOLDEN["losses"]["DAPO token mean, clip 0.2/0.28"]["loss"]
    assert loss_and_gradient(grpo.dual_clipped, grpo.token_mean)[0] == pytest.approx(expected, abs=1e-9)


def by_group(estimator: grpo.Advantages) -> list[float]:
    return [*estimator(INPUTS["rewards"][:2]), *estimator(INPUTS["rewards"][2:])]


def test_advantages_match() -> None:
    golden = GOLDEN["advantages"]
    groups = [INPUTS["rewards"][:2], INPUTS["rewards"][2:]]
    found = {
        "grpo, std ddof 1, eps 1e-6 (verl)": by_group(grpo.grpo),
        "grpo, std ddof 1, eps 1e-4 (TRL)": by_group(partial(grpo.grpo, eps=1e-4)),
        "no std (Dr. GRPO)": by_group(grpo.dr_grpo),
        "leave-one-out (RLOO)": by_group(grpo.rloo),
        "batch std (TRL)": [a for group in grpo.batch_std(groups) for a in group],
    }
    assert set(found) == set(golden)
    for name, values in found.items():
        # TRL computed its own in float32: 1e-7 is the last digit it has.
        assert values == pytest.approx(golden[name], abs=2e-7), name
    assert by_group(partial(grpo.grpo, ddof=0, eps=1e-8)) == pytest.approx(
        [0.99999998, -0.99999998, 0.99999992, -0.99999992], abs=1e-8
    )


def test_kl_matches() -> None:
    num_tokens = sum(INPUTS["lengths"])

    def mean(kl_BT: Tensor) -> float:
        return float((kl_BT * mask()).sum() / num_tokens)

    golden = GOLDEN["kl_token_mean"]
    assert mean(grpo.k1(tensor("lp"), tensor("ref"))) == pytest.approx(golden["k1"], abs=1e-9)
    assert mean(grpo.k1(tensor("lp"), tensor("ref")).abs()) == pytest.approx(golden["abs_k1"], abs=1e-9)
    assert mean(grpo.k2(tensor("lp"), tensor("ref"))) == pytest.approx(golden["k2"], abs=1e-9)
    assert mean(grpo.k3(tensor("lp"), tensor("ref"))) == pytest.approx(golden["k3"], abs=1e-9)


def test_sequence_ratios_match() -> None:
    ratios = grpo.sequence_ratio(tensor("old"), sampler_BT=tensor("roll"), mask_BT=mask())
    expected = GOLDEN["sequence_sampler_ratios exp(sum(old-roll))"]
    assert ratios.tolist() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("estimator", [grpo.grpo, grpo.dr_grpo, grpo.rloo])
@pytest.mark.parametrize("rewards", [[1.0], [0.1] * 8, [0.5, 0.5 + 1e-9]])
def test_a_group_without_variance_has_no_advantage(estimator: grpo.Advantages, rewards: list[float]) -> None:
    assert estimator(rewards) == (0.0,) * len(rewards)


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_advantages_are_centred_and_keep_the_order(rewards: list[float]) -> None:
    for estimator in (grpo.grpo, grpo.dr_grpo, grpo.rloo):
        found = estimator(rewards)
        assert math.fsum(found) == pytest.approx(0.0, abs=1e-6)
        if grpo.has_variance(rewards):
            assert found[rewards.index(max(rewards))] > 0 > found[rewards.index(min(rewards))]


def test_on_policy_the_gradient_raises_good_tokens_and_lowers_bad_ones() -> None:
    logprobs_BT = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]], requires_grad=True)
    tokens = grpo.Tokens(
        logprobs_BT=logprobs_BT,
        old_BT=logprobs_BT.detach(),
        mask_BT=torch.ones(2, 2, dtype=torch.bool),
        advantage_B=torch.tensor([1.0, -1.0]),
    )
    for token_loss in (grpo.clipped, grpo.dual_clipped, grpo.gspo, partial(grpo.cispo, clip_high=5.0)):
        loss_BT = token_loss(tokens)
        (gradient,) = torch.autograd.grad(loss_BT.sum(), logprobs_BT)
        assert gradient[0].tolist() == [-1.0, -1.0]
        assert gradient[1].tolist() == [1.0, 1.0]


def test_padding_does_not_count_even_where_it_is_not_a_number() -> None:
    logprobs_BT = torch.tensor([[-1.0, float("nan")]], requires_grad=True)
    tokens = grpo.Tokens(
        logprobs_BT=logprobs_BT,
        old_BT=torch.zeros(1, 2),
        mask_BT=torch.tensor([[True, False]]),
        advantage_B=torch.tensor([1.0]),
    )
    loss = grpo.total(grpo.clipped(tokens), mask_BT=tokens.mask_BT, weight_B=grpo.token_mean(torch.tensor([1])))
    loss.backward()
    assert math.isfinite(loss.item())
    assert logprobs_BT.grad is not None
    assert logprobs_BT.grad[0, 1] == 0.0


def test_cispo_refuses_a_relative_clip() -> None:
    with pytest.raises(UserError, match="absolute cap"):
        loss_and_gradient(grpo.cispo, grpo.token_mean)
