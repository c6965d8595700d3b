"""The output head: its gradient is autograd's, and the same where probabilities are made again in sections."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from selfplay.learner import head
from selfplay.learner.head import Head, add_in_place

ROWS, HIDDEN, VOCABULARY = 37, 16, 53


def inputs(dtype: torch.dtype) -> tuple[Tensor, nn.Parameter, Tensor]:
    torch.manual_seed(0)
    hidden_ND = torch.randn(ROWS, HIDDEN, dtype=dtype, requires_grad=True)
    weight_VD = nn.Parameter(torch.randn(VOCABULARY, HIDDEN, dtype=dtype))
    return hidden_ND, weight_VD, torch.randint(VOCABULARY, (ROWS,))


def gradients(dtype: torch.dtype, *, sink: bool) -> tuple[Tensor, Tensor, Tensor]:
    hidden_ND, weight_VD, targets_N = inputs(dtype)
    sink_VD = torch.zeros(VOCABULARY, HIDDEN) if sink else None
    logprob_N, _ = Head.apply(hidden_ND, weight_VD, targets_N, 0.7, sink_VD)  # type: ignore[no-untyped-call]
    (logprob_N * torch.linspace(-1, 1, ROWS)).sum().backward()
    assert hidden_ND.grad is not None
    found_VD = sink_VD if sink_VD is not None else weight_VD.grad
    assert found_VD is not None
    return logprob_N.detach(), hidden_ND.grad, found_VD


@pytest.mark.parametrize("sink", [True, False])
def test_it_is_what_autograd_makes_of_the_formula(sink: bool) -> None:
    hidden_ND, weight_VD, targets_N = inputs(torch.float32)
    logprobs_NV = torch.log_softmax(hidden_ND @ weight_VD.T / 0.7, dim=-1)
    expected_N = logprobs_NV.gather(1, targets_N[:, None]).squeeze(1)
    (expected_N * torch.linspace(-1, 1, ROWS)).sum().backward()
    logprob_N, hidden_gradient_ND, weight_gradient_VD = gradients(torch.float32, sink=sink)
    torch.testing.assert_close(logprob_N, expected_N)
    torch.testing.assert_close(hidden_gradient_ND, hidden_ND.grad)
    torch.testing.assert_close(weight_gradient_VD, weight_VD.grad)


@pytest.mark.parametrize("sink", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sections_change_nothing_but_last_bits(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, sink: bool) -> None:
    kept = gradients(dtype, sink=sink)
    monkeypatch.setattr(head, "KEPT_ELEMENTS", 8 * VOCABULARY)
    again = gradients(dtype, sink=sink)
    assert torch.equal(kept[0], again[0])
    for ours, theirs in zip(again[1:], kept[1:], strict=True):
        torch.testing.assert_close(
            ours.float(), theirs.float(), rtol=2e-2, atol=2e-2 * float(theirs.float().abs().max())
        )


def test_how_many_rows_a_pass_takes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gradients(torch.bfloat16, sink=True)
    monkeypatch.setattr(head, "PASS_ELEMENTS", 5 * VOCABULARY)
    for ours, theirs in zip(gradients(torch.bfloat16, sink=True), whole, strict=True):
        assert torch.equal(ours, theirs)


def test_a_token_that_is_all_but_impossible_keeps_its_log_probability() -> None:
    hidden_ND, weight_VD = torch.ones(4, 1), torch.zeros(VOCABULARY, 1)
    weight_VD[0], weight_VD[1] = 500.0, -500.0
    logprob_N, entropy_N = Head.apply(hidden_ND, weight_VD, torch.tensor([0, 1, 2, 3]), 1.0, None)  # type: ignore[no-untyped-call]
    assert logprob_N.tolist() == [0.0, -1000.0, -500.0, -500.0]
    assert entropy_N.tolist() == [0.0] * 4


def test_adding_in_pieces_adds() -> None:
    total, part = torch.randn(1100, 1000), torch.randn(1100, 1000)
    expected = total + part.bfloat16().float()
    add_in_place(total, part.bfloat16())
    assert torch.equal(total, expected)
