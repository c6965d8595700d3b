"""Float32 truth, gradients summed in float32, and a step that happens whole or not at all."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from transformers import LlamaForCausalLM

from selfplay.errors import RunFailed
from selfplay.learner.master import Master

MakeModel = Callable[..., LlamaForCausalLM]


def filled(model: LlamaForCausalLM, value: float, dtype: str = "float32") -> Master:
    master = Master(model, dtype=dtype, betas=(0.9, 0.95), weight_decay=0.0)  # type: ignore[arg-type]
    for gradient in master.gradients.values():
        gradient.fill_(value)
    return master


def test_a_step_is_adamw_s(tiny_model: MakeModel) -> None:
    expected = tiny_model()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=0.1, betas=(0.9, 0.95), weight_decay=0.0)
    for parameter in expected.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    norm = torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    optimizer.step()
    model = tiny_model()
    assert filled(model, 0.5).step(lr=0.1, max_grad_norm=1.0) == pytest.approx(norm.item())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), atol=1e-6, rtol=1e-6)


def test_gradients_of_micro_batches_are_summed_in_float32(tiny_model: MakeModel) -> None:
    model = tiny_model()
    master = Master(model, dtype="bfloat16", betas=(0.9, 0.95), weight_decay=0.0)
    name, parameter = next(iter(model.named_parameters()))
    for _ in range(300):
        (parameter * 1.0).sum().backward()
    assert parameter.grad is None
    assert torch.equal(master.gradients[name], torch.full_like(master.gradients[name], 300.0))
    master.zero_gradients()
    assert not master.gradients[name].any()


def test_float32_compute_is_the_master(tiny_model: MakeModel) -> None:
    model = tiny_model()
    master = filled(model, 1.0)
    assert all(p.data_ptr() == master.tensors()[n].data_ptr() for n, p in model.named_parameters())


def test_a_model_is_given_back_with_its_master(tiny_model: MakeModel) -> None:
    model = tiny_model()
    master = filled(model, 1.0)
    for parameter in model.parameters():
        (parameter * 1.0).sum().backward()  # type: ignore[no-untyped-call]
    watched = [weakref.ref(thing) for thing in (model, master, next(iter(master.gradients.values())))]
    del model, master
    gc.collect()
    assert [thing() for thing in watched] == [None, None, None]


def test_a_gradient_that_is_not_finite_changes_nothing(tiny_model: MakeModel) -> None:
    model = tiny_model()
    master = filled(model, float("nan"))
    before, moments = master.snapshot()
    with pytest.raises(RunFailed, match="not finite"):
        master.step(lr=0.1, max_grad_norm=1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in master.tensors().items())
    assert master.moments() == moments == {}
    assert not any(gradient.any() for gradient in master.gradients.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_snapshot_restores_parameters_and_moments(tiny_model: MakeModel, dtype: str) -> None:
    model = tiny_model()
    master = filled(model, 1.0, dtype)
    master.step(lr=0.1, max_grad_norm=1.0)
    tensors, moments = master.snapshot()
    compute = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for gradient in master.gradients.values():
        gradient.fill_(-2.0)
    master.step(lr=0.1, max_grad_norm=1.0)
    master.restore(tensors, moments)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in master.tensors().items())
    assert all(torch.equal(tensor, moments[name]) for name, tensor in master.moments().items())
    assert all(torch.equal(parameter, compute[name]) for name, parameter in model.named_parameters())
