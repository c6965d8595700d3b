"""Numbers of rows between which no bit changes: found by trying, on this processor, whatever it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from selfplay.policy import rows
from selfplay.policy.rows import ROW_TILE, counts
from selfplay.policy.toy import toy_model


def cancelling(layer: nn.Linear, *, seed: int) -> torch.Tensor:
    """Give `layer` weights, and return an input, whose products all cancel: what comes out is rounding."""
    drawn = torch.Generator().manual_seed(seed)
    half = layer.in_features // 2
    order = torch.randperm(2 * half, generator=drawn)
    row, weight = torch.randn(half, generator=drawn), torch.randn(layer.out_features, half, generator=drawn)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([weight, -weight], dim=1)[:, order])
    return torch.cat([row, row])[order].to(layer.weight.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 192), (576, 1536), (1536, 576)])
@torch.inference_mode()
def test_a_row_has_the_same_bits_at_every_count_and_place(inputs: int, outputs: int, dtype: torch.dtype) -> None:
    layer = nn.Linear(inputs, outputs, bias=False, dtype=dtype)
    found = counts(layer, most=32)
    assert found, "no numbers of rows agree on this processor"
    assert found[-1] >= 32
    assert all(number % ROW_TILE == 0 for number in found)
    assert found == tuple(sorted(found))
    row = cancelling(layer, seed=7)
    alone = layer(row.repeat(found[0], 1))[0]
    assert alone.any(), "nothing was left of the sums"
    beside = torch.randn(found[-1], inputs).to(dtype)
    for number in found:
        for place in (0, number // 2, number - 1):
            company = beside[:number].clone()
            company[place] = row
            assert torch.equal(layer(company)[place], alone), (number, place)


def test_a_larger_batch_may_be_asked_for() -> None:
    model, _ = toy_model(0)
    assert counts(model, most=100)[-1] >= 100


def test_adapters_and_biases_are_looked_at_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[rows.Shape] = []
    monkeypatch.setattr(rows, "_bits", lambda shape, numbers: tried.append(shape) or dict.fromkeys(numbers, b""))
    parts = nn.Sequential(nn.Linear(40, 2, bias=False), nn.Linear(2, 40), nn.LayerNorm(40))
    assert counts(parts, most=5)[0] == ROW_TILE
    assert set(tried) == {(2, 40, torch.float32, False), (40, 2, torch.float32, True)}


def test_kernels_that_disagree_leave_the_largest_set_that_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 to 48 rows, two kernels: one up to 20, one from 24 on; at 40 equal rows differ by their place."""

    def bits(shape: rows.Shape, numbers: tuple[int, ...]) -> dict[int, bytes]:
        return {number: b"few" if number <= 20 else b"many" for number in numbers if number != 40}

    monkeypatch.setattr(rows, "_bits", bits)
    assert counts(nn.Linear(33, 17), most=30) == (24, 28, 32, 36, 44, 48)


def test_where_nothing_agrees_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_bits", lambda shape, numbers: {})
    assert counts(nn.Linear(34, 18), most=30) == ()


def test_elsewhere_than_on_a_processor_nothing_is_claimed() -> None:
    assert counts(nn.Linear(8, 8, device="meta"), most=8) == ()
