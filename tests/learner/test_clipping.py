"""The gradient's norm: exact where torch's is not, and the same for parts of the rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from selfplay.learner.clipping import clip, square_of

SHAPES = ((3000, 576), (576,), (64, 8, 3), ())


def gradients() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [1e-3 * torch.randn(shape, generator=generator) for shape in SHAPES]


def exact(of: list[Tensor]) -> float:
    return math.fsum(float(one.double().square().sum()) for one in of)


def test_it_is_exact_for_many_numbers() -> None:
    found = gradients()
    assert square_of(found) == pytest.approx(exact(found), rel=1e-9)
    assert square_of([]) == 0.0


def test_ranks_that_hold_some_rows_each_add_up_to_the_same() -> None:
    whole = gradients()
    parts = [[one[rank::3] if one.dim() else one[None][rank:1] for one in whole] for rank in range(3)]
    assert any(not one.numel() for part in parts for one in part), "a rank may hold no row"
    assert math.fsum(map(square_of, parts)) == pytest.approx(square_of(whole), rel=1e-14)


def test_it_is_clipped_to_a_norm() -> None:
    found = gradients()
    norm = math.sqrt(square_of(found))
    before = [one.clone() for one in found]
    clip(found, norm=norm, most=2 * norm)
    assert all(torch.equal(one, old) for one, old in zip(found, before, strict=True))
    clip(found, norm=norm, most=norm / 2)
    assert square_of(found) == pytest.approx(norm**2 / 4, rel=1e-4)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_stays_so(value: float) -> None:
    assert not math.isfinite(square_of([torch.ones(3, 3), torch.tensor([[1.0, value]])]))
