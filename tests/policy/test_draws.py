"""One token at a time: keyed, exact, independent of the other rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from selfplay.errors import RunFailed
from selfplay.policy.draws import Drawer, uniforms


def test_uniforms_are_a_pure_function_of_seed_and_index() -> None:
    long = uniforms(41, 500)
    assert uniforms(41, 7).tolist() == long[:7].tolist()
    assert uniforms(42, 7).tolist() != long[:7].tolist()
    assert ((long >= 0) & (long < 1)).all()
    assert abs(long.mean() - 0.5) < 0.05


def test_uniforms_never_change_between_versions() -> None:
    # a recorded run resumes only while these hold
    assert uniforms(1, 3).tolist() == [0.3035680343067586, 0.8487087496857769, 0.1561347780434731]


@pytest.mark.parametrize("vocabulary", [5, 256, 1000])
def test_draws_follow_the_softmax(vocabulary: int) -> None:
    torch.manual_seed(0)
    logits_V = torch.randn(vocabulary) * 2
    rows, temperature = 4000, 0.7
    drawer = Drawer(vocabulary, device=torch.device("cpu"))
    drawn = drawer.draw(
        logits_V.expand(rows, -1), temperatures=[temperature] * rows, uniforms=np.linspace(0, 1, rows, endpoint=False)
    )
    wanted_V = torch.log_softmax(logits_V / temperature, -1)
    got_V = np.bincount(drawn.ids, minlength=vocabulary) / rows
    assert np.abs(got_V - wanted_V.exp().numpy()).max() < 1e-3
    assert np.allclose(drawn.logprobs, wanted_V[list(drawn.ids)].numpy(), atol=1e-6)


def test_a_row_is_drawn_alike_alone_and_among_others() -> None:
    torch.manual_seed(1)
    logits_NV = (torch.randn(33, 700) * 3).bfloat16()
    heat, numbers = [0.5 + i / 20 for i in range(33)], uniforms(3, 33).tolist()
    drawer = Drawer(700, device=torch.device("cpu"))
    together = drawer.draw(logits_NV, temperatures=heat, uniforms=numbers)
    for i in (0, 9, 32):
        alone = drawer.draw(logits_NV[i : i + 1], temperatures=heat[i : i + 1], uniforms=numbers[i : i + 1])
        assert (alone.ids, alone.logprobs) == (together.ids[i : i + 1], together.logprobs[i : i + 1])


def test_the_extremes_of_the_uniform_number_pick_possible_tokens() -> None:
    logits_NV = torch.full((2, 600), -math.inf)
    logits_NV[:, [17, 400]] = 0.0
    drawn = Drawer(600, device=torch.device("cpu")).draw(
        logits_NV, temperatures=[1.0, 1.0], uniforms=[0.0, 1.0 - 2.0**-53]
    )
    assert drawn.ids == (17, 400)
    assert drawn.logprobs == pytest.approx([-math.log(2)] * 2)


def test_temperature_zero_takes_the_largest_and_records_temperature_one() -> None:
    logits_NV = torch.tensor([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0]])
    drawn = Drawer(3, device=torch.device("cpu")).draw(logits_NV, temperatures=[0.0, 1.0], uniforms=[0.0, 0.0])
    assert drawn.ids == (1, 0)
    assert drawn.logprobs[0] == pytest.approx(torch.log_softmax(logits_NV[0], -1)[1].item(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logprobs_are_exact_under_each_temperature(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    heat = [0.0, 0.05, 0.8, 1.0, 1.7] * 20
    logits_NV = (torch.randn(len(heat), 5000) * 4).to(dtype)
    numbers = uniforms(9, len(heat)).tolist()
    drawn = Drawer(5000, device=torch.device("cpu")).draw(logits_NV, temperatures=heat, uniforms=numbers)
    scale_N1 = torch.tensor([t or 1.0 for t in heat], dtype=torch.float64).unsqueeze(-1)
    wanted_NV = torch.log_softmax(logits_NV.double() / scale_N1, dim=-1)
    wanted_N = wanted_NV.gather(-1, torch.tensor(drawn.ids).unsqueeze(-1)).squeeze(-1)
    assert (torch.tensor(drawn.logprobs, dtype=torch.float64) - wanted_N).abs().max() < 5e-5
    greedy = [i for i, t in enumerate(heat) if t == 0.0]
    assert [drawn.ids[i] for i in greedy] == logits_NV[greedy].argmax(-1).tolist()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_logits_that_are_not_finite_end_the_run(broken: float) -> None:
    logits_NV = torch.zeros(2, 9)
    logits_NV[1, 4] = broken
    with pytest.raises(RunFailed, match="not finite"):
        Drawer(9, device=torch.device("cpu")).draw(logits_NV, temperatures=[1.0, 1.0], uniforms=[0.5, 0.5])
