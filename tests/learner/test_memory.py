"""The prediction counts what models have and autograd keeps; layers are computed again only where memory is short."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from selfplay import config as configs
from selfplay import parts, sizing
from selfplay.learner import head, memory
from selfplay.learner.batch import Row, pack
from selfplay.learner.forward import score
from selfplay.learner.memory import MB, Setup, Shape, fixed, limit_mb, room_of, shape_of, update_mb
from selfplay.learner.trainer import Trainer
from selfplay.policy.local import LocalPolicy
from selfplay.project import Project
from selfplay.types import Batch
from tests.learner.test_families import DENSE, model_of, sample, shared, turns

MakeTrainer = Callable[..., Trainer]
MakeBatch = Callable[..., Batch]

SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


def shape(**changes: Any) -> Shape:
    found = shape_of(SMOLLM2 | changes)
    assert found is not None
    return found


def row_of_both() -> Row:
    samples = (*shared(), *turns())
    return pack(samples, range(len(samples)))


@pytest.mark.parametrize("family", DENSE)
def test_parameters_are_those_of_the_model(family: str) -> None:
    model = model_of(family)
    found = shape_of(model.config.to_dict())
    assert found is not None
    counted = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert found.parameters == counted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("family", DENSE)
def test_activations_are_what_autograd_keeps(family: str, dtype: torch.dtype) -> None:
    model, row = model_of(family, dtype), row_of_both()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    weight = model.get_output_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = score(model, row, temperature=1.0, sinks={weight: torch.zeros(weight.shape)})
    assert scores.logprob_N.requires_grad
    found = shape_of(model.config.to_dict())
    assert found is not None
    setup = Setup(dtype="bfloat16" if dtype == torch.bfloat16 else "float32")
    counted = update_mb(found, row, setup=setup, recompute=False)["activations"] / memory.SLACK
    assert counted == pytest.approx(sum(t.untyped_storage().nbytes() for t in kept.values()) / MB, rel=0.1)


def test_the_fixed_part_is_arithmetic() -> None:
    found = fixed(shape(), Setup(dtype="bfloat16", reference=True, rows=4))
    parameters = shape().parameters / MB
    assert found == {
        "Python and libraries": memory.FLOOR_MB,
        "parameters": 4 * parameters,
        "their copy in bfloat16": 2 * parameters,
        "gradients": 4 * parameters,
        "moments": 8 * parameters,
        "reference": 2 * parameters,
        "sampler's cache": 4 * 8192 * 30 * 2 * 3 * 64 * 2 / MB,
    }
    assert "their copy in float32" not in fixed(shape(), Setup(dtype="float32"))
    small = fixed(shape(), Setup(dtype="bfloat16", lora_rank=8, reference=True))
    assert small["gradients"] < 0.02 * found["gradients"]
    assert "reference" not in small
    assert fixed(shape(), Setup(dtype="bfloat16", optimizer="adamw8bit"))["moments"] < 0.3 * found["moments"]


def test_every_role_with_an_adapter_has_a_cache(project: Project, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))

    def caches_mb(own: str) -> tuple[float, float]:
        sets = [f"policy.model={tmp_path}", "learner.lora_rank=8", f"learner.lora_per_role={own}"]
        config = configs.load("quickstart", project=project, sets=sets, environ={})
        players = parts.roles(config, project)
        needs = sizing.needs_of(config, players)
        assert needs is not None
        return parts.forecast_of(config, players, shape()).fixed["sampler's cache"], needs.keys_mb

    assert caches_mb("true") == tuple(2 * mb for mb in caches_mb("false"))


def test_adapters_are_counted(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(lora_rank=4)
    found = shape_of(trainer.model.config.to_dict())
    assert found is not None
    assert found.adapters(4) == sum(p.numel() for n, p in trainer.model.named_parameters() if "lora_" in n)


def test_a_configuration_of_another_kind_has_no_shape() -> None:
    assert shape_of({"n_embd": 768, "n_layer": 12}) is None
    assert shape_of(SMOLLM2 | {"num_local_experts": 8}) is None
    assert shape_of({"model_type": "gemma3", "text_config": SMOLLM2}) == shape()


def test_windows_save_attention() -> None:
    row = pack([sample("a", (3000, False), (500, True))], [0])
    setup = Setup(dtype="bfloat16")
    whole, narrow = (
        update_mb(shape(sliding_window=window), row, setup=setup, recompute=False)["activations"]
        for window in (None, 512)
    )
    assert narrow < 0.7 * whole


def test_layers_are_computed_again_where_a_micro_batch_would_not_fit() -> None:
    setup, row = Setup(dtype="bfloat16"), pack([sample("a", (300, False), (500, True))], [0])
    kept, again = (
        sum(update_mb(shape(), row, setup=setup, recompute=recompute).values()) for recompute in (False, True)
    )
    always = sum(fixed(shape(), setup).values())
    assert again < 0.4 * kept
    assert room_of(shape(), setup, memory_mb=always + kept - 1).tight(row)
    assert not room_of(shape(), setup, memory_mb=always + kept + 1).tight(row)
    assert not room_of(shape(), setup, memory_mb=None).tight(row)
    assert not room_of(None, setup, memory_mb=1.0).tight(row)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_update_has_the_same_bits_either_way(make_trainer: MakeTrainer, make_batch: MakeBatch, dtype: str) -> None:
    roomy, tight = make_trainer(dtype=dtype), make_trainer(dtype=dtype, memory_mb=1.0)
    counted: list[bool] = []
    forwards = tight.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: counted.append(True))
    updates = [trainer.update(make_batch()) for trainer in (roomy, tight)]
    forwards.remove()
    assert replace(updates[0], seconds=0.0) == replace(updates[1], seconds=0.0)
    assert len(counted) == 2 * len(updates[1].partition)
    assert roomy.fingerprint == tight.fingerprint


def test_the_constants_are_those_of_their_owners() -> None:
    assert memory.PASS_BYTES == 2 * 4 * head.PASS_ELEMENTS
    assert memory.KEPT_ELEMENTS == head.KEPT_ELEMENTS
    assert inspect.signature(LocalPolicy).parameters["kv_tokens"].default == memory.CACHE_TOKENS


def test_the_limit_is_given_or_half_of_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_mb(123) == 123.0
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "none")
    machine = limit_mb(0)
    assert machine > 0
    (tmp_path / "limit").write_text("2000000\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "limit")
    assert limit_mb(0) == 1.0
    (tmp_path / "limit").write_text("max\n")
    assert limit_mb(0) == machine
