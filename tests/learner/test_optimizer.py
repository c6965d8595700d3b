"""Moments in 8 bits: near those in 32, kept to the bit, and refused where their library is missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from selfplay.errors import NotReady, UserError
from selfplay.learner import optimizer
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.policy.toy import ALPHABET, toy_model
from selfplay.types import Batch

MakeTrainer = Callable[..., Trainer]
MakeBatch = Callable[..., Batch]
TORCHAO = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


def wide(**options: object) -> Trainer:
    """A trainer of the toy model, whose matrices are large enough for 8 bits."""
    # note: the batches' ids go up to 63.
    model, _ = toy_model(0, alphabet=ALPHABET + "AB")
    chosen = {"lr": 1e-3, "warmup_lr": 1e-3, "dtype": "float32", "threads": 1, **options}
    return Trainer(model, options=Options(**chosen))  # type: ignore[arg-type]


def walk(kind: optimizer.Kind) -> tuple[torch.Tensor, optimizer.Optimizer, nn.Parameter]:
    """Thirty steps of one matrix towards zero under noise."""
    generator = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.randn(64, 64, generator=generator))
    first = parameter.detach().clone()
    made = optimizer.make(kind, {"matrix": parameter}, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(30):
        parameter.grad = parameter.detach() + 0.1 * torch.randn(64, 64, generator=generator)
        made.step(lr=1e-2)
    return parameter.detach() - first, made, parameter


@TORCHAO
def test_eight_bits_step_nearly_as_thirty_two() -> None:
    exact, _, _ = walk("adamw")
    found, made, parameter = walk("adamw8bit")
    assert (found - exact).norm() < 0.03 * exact.norm()
    moments = made.moments()
    codes = moments["exp_avg_codes.matrix"]
    assert (codes.dtype, codes.shape) == (torch.uint8, parameter.shape)
    num_bytes = sum(t.numel() * t.element_size() for t in moments.values())
    assert num_bytes < 0.3 * 2 * 4 * parameter.numel()


@TORCHAO
@pytest.mark.parametrize("signed", [True, False])
def test_codes_are_those_of_torchao(signed: bool) -> None:
    from torchao.optim.subclass_8bit import OptimState8bit

    generator = torch.Generator().manual_seed(0)
    # Of all magnitudes, so that every value of the map is met, and a block of zeros.
    numbers = torch.randn(1 << 16, generator=generator) * 10 ** (-8 * torch.rand(1 << 16, generator=generator))
    numbers = numbers if signed else numbers.abs()
    numbers[:256] = 0.0
    theirs = OptimState8bit.zeros(numbers.shape, signed=signed)
    theirs.copy_(numbers)
    codec = optimizer.Codec(signed=signed, device=torch.device("cpu"))
    codes, scale = codec.encode(numbers)
    assert len(codes.unique()) > 250
    assert torch.equal(codes, theirs.codes)
    assert torch.equal(scale, theirs.scale)
    assert torch.equal(codec.decode(codes, scale), theirs.dequantize())


@TORCHAO
def test_a_whole_update_restores_what_was_quantised_to_the_bit(make_batch: MakeBatch, tmp_path: Path) -> None:
    trainer = wide(optimizer="adamw8bit")
    trainer.update(make_batch())
    save = trainer.save(tmp_path / "save", step=0)
    assert any(name.startswith("exp_avg_sq_codes.") for name in trainer._master.moments())
    assert "adamw8bit" in trainer.fingerprint
    other = wide(optimizer="adamw8bit")
    other.load(tmp_path / "save", save)
    assert other.save(tmp_path / "again", step=0).state_digest == save.state_digest
    for _ in range(2):
        expected, found = trainer.update(make_batch()), other.update(make_batch())
        assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    assert trainer.save(tmp_path / "a", step=1).state_digest == other.save(tmp_path / "b", step=1).state_digest


@TORCHAO
def test_moments_of_another_optimizer_are_refused(make_batch: MakeBatch, tmp_path: Path) -> None:
    trainer = wide(optimizer="adamw8bit")
    trainer.update(make_batch())
    save = trainer.save(tmp_path / "save", step=0)
    with pytest.raises(UserError, match="moments of `adamw8bit`, and this learner steps by `adamw`"):
        wide().load(tmp_path / "save", save)


def test_without_its_library_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(NotReady, match="needs torchao") as refused:
        wide(optimizer="adamw8bit")
    assert "pip install torchao" in str(refused.value.hint)


def test_the_rate_rises_over_the_ramp_and_a_save_keeps_the_place_in_it(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path
) -> None:
    trainer = make_trainer(lr=0.004, ramp=4)
    trainer.start_phase("play")
    rates = [trainer.update(make_batch()).lr for _ in range(2)]
    save = trainer.save(tmp_path / "save", step=1)
    other = make_trainer(lr=0.004, ramp=4)
    other.load(tmp_path / "save", save)
    rates += [other.update(make_batch()).lr for _ in range(3)]
    assert rates == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.004])
