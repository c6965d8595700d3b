"""The pinned model: its weights stay as they were, and the trained one's come back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from selfplay.learner.reference import pinned
from selfplay.learner.weights import tensors_digest


@pytest.fixture
def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2).to(torch.bfloat16)


def test_a_copy_in_the_compute_type_that_learning_does_not_reach(model: nn.Linear) -> None:
    wide = {name: torch.randn(p.shape) for name, p in model.named_parameters()}
    reference = pinned(model, wide, compute=dict(model.named_parameters()), adapters=False)
    assert reference.digest == tensors_digest(wide)
    expected = {name: tensor.to(torch.bfloat16) for name, tensor in wide.items()}
    for tensor in wide.values():
        tensor.zero_()
    with torch.no_grad():
        model.weight.zero_()
    with reference.model() as frozen:
        assert frozen is not model
        for name, parameter in frozen.named_parameters():
            assert not parameter.requires_grad
            assert torch.equal(parameter, expected[name])


def test_the_same_model_with_another_adapter_while_inside(model: nn.Linear) -> None:
    compute = {"bias": model.bias}
    own, weight = model.bias.detach().clone(), model.weight.detach().clone()
    other = torch.tensor([1.0, -2.0])
    reference = pinned(model, {"bias": other}, compute=compute, adapters=True)
    assert reference.digest == tensors_digest({"bias": other}), "the base is not part of it"
    with reference.model() as switched:
        assert switched is model
        assert model.bias.tolist() == other.tolist()
        assert torch.equal(model.weight, weight)
    assert torch.equal(model.bias, own)
    with pytest.raises(KeyError), reference.model():
        raise KeyError("inside")
    assert torch.equal(model.bias, own), "it comes back after an error too"


def test_a_backward_pass_that_is_owed_finds_its_own_weights(model: nn.Linear) -> None:
    model.float()
    reference = pinned(model, {"weight": torch.zeros(2, 3)}, compute={"weight": model.weight}, adapters=True)
    given = torch.ones(1, 3, requires_grad=True)
    loss = model(given).sum()
    with reference.model() as frozen, torch.no_grad():
        assert torch.equal(frozen(torch.ones(1, 3)), model.bias.reshape(1, 2))
    loss.backward()
    assert given.grad is not None
    assert torch.equal(given.grad, model.weight.sum(0, keepdim=True))
