"""Adapters: the model they start as, the gradient they get, the saves that peft opens, the saves that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from selfplay.errors import RunFailed, UserError
from selfplay.learner.lora import ALPHA
from selfplay.learner.options import Options
from selfplay.learner.stored import digests
from selfplay.learner.trainer import Trainer
from selfplay.policy import Completion, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.types import Batch, Sampling

MakeTrainer = Callable[..., Trainer]
MakeBatch = Callable[..., Batch]
MakeModel = Callable[..., LlamaForCausalLM]
DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
LAYER = "model.layers.1.mlp.up_proj"


def frozen(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters() if ".lora_" not in name}


@DTYPES
def test_the_first_adapter_changes_nothing(make_trainer: MakeTrainer, make_batch: MakeBatch, dtype: str) -> None:
    samples = make_batch().samples
    plain, adapted = make_trainer(dtype=dtype), make_trainer(dtype=dtype, lora_rank=4)
    assert adapted.logprobs(samples, temperature=1.0) == plain.logprobs(samples, temperature=1.0)


@DTYPES
def test_only_adapters_of_the_blocks_learn(make_trainer: MakeTrainer, make_batch: MakeBatch, dtype: str) -> None:
    trainer = make_trainer(dtype=dtype, lora_rank=4)
    before, samples = frozen(trainer), make_batch().samples
    scores, digest = trainer.logprobs(samples, temperature=1.0), trainer.weights_digest()
    trainer.update(make_batch())
    assert trainer.weights_digest() != digest
    assert trainer.logprobs(samples, temperature=1.0) != scores
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen(trainer).items())
    names = set(trainer._master.tensors())
    assert len(names) == 2 * 2 * 7, "A and B of seven linear layers in each of two blocks"
    assert not any("embed" in name or "lm_head" in name for name in names)
    assert {name.split(".", 1)[1] for name in trainer._master.moments()} == names
    for name, parameter in trainer.model.named_parameters():
        assert parameter.requires_grad == (".lora_" in name)
        assert parameter.dtype == getattr(torch, dtype)
        assert parameter.grad is None


def test_the_gradient_is_that_of_the_weights_projected(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    """With B zero: dB = (alpha / r) dW A^T, dA = 0 (the chain rule on W + (alpha / r) B A)."""
    plain, adapted = make_trainer(), make_trainer(lora_rank=4)
    factor_A = adapted._master.tensors()[f"base_model.model.{LAYER}.lora_A.weight"].clone()
    for trainer in (plain, adapted):
        trainer.options = replace(trainer.options, max_grad_norm=1e9)
        trainer.update(make_batch())
    # The first moment after one step is the gradient times 1 - 0.9.
    weight = plain._master.moments()[f"exp_avg.{LAYER}.weight"]
    moments = adapted._master.moments()
    found = moments[f"exp_avg.base_model.model.{LAYER}.lora_B.weight"]
    torch.testing.assert_close(found, ALPHA / 4 * weight @ factor_A.T, atol=1e-6, rtol=1e-5)
    assert not moments[f"exp_avg.base_model.model.{LAYER}.lora_A.weight"].any()


def test_the_first_values_follow_from_the_seed(make_trainer: MakeTrainer) -> None:
    first, same, other = (make_trainer(lora_rank=4, **more) for more in ({}, {}, {"seed": 0}))
    assert first.weights_digest() == same.weights_digest() == other.weights_digest()
    assert "rank 4" in first.fingerprint
    assert first.fingerprint != make_trainer().fingerprint


@DTYPES
@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
def test_peft_opens_a_save(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tiny_model: MakeModel, tmp_path: Path, dtype: str
) -> None:
    trainer = make_trainer(lora_rank=4, dtype=dtype)
    trainer.update(make_batch())
    trainer.save(tmp_path / "save", step=0)
    files = {file.name for file in (tmp_path / "save").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors", "learner.safetensors"}
    opened = peft.PeftModel.from_pretrained(tiny_model(), tmp_path / "save")
    found = {n.replace(".default.", "."): p for n, p in opened.named_parameters() if ".lora_" in n}
    assert found.keys() == trainer._master.tensors().keys()
    assert all(torch.equal(p, trainer._master.tensors()[name]) for name, p in found.items())
    ids = torch.tensor([[5, 6, 7, 8]])
    error = 1e-5 if dtype == "float32" else 0.2
    with torch.no_grad():
        assert (opened(input_ids=ids).logits - trainer.model(input_ids=ids).logits).abs().max() < error


@DTYPES
def test_saved_and_loaded_goes_on_to_equal_bits(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path, dtype: str
) -> None:
    trainer = make_trainer(lora_rank=4, dtype=dtype)
    trainer.update(make_batch())
    save = trainer.save(tmp_path / "save", step=0)
    of_bytes = digests(tmp_path / "save")
    assert (of_bytes.weights, of_bytes.state, of_bytes.policy_version) == (save.weights_digest, save.state_digest, 1)
    other = make_trainer(lora_rank=4, dtype=dtype)
    other.load(tmp_path / "save", save)
    expected, found = trainer.update(make_batch()), other.update(make_batch())
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    again = make_trainer(lora_rank=4, dtype=dtype)
    again.load(tmp_path / "save", save)
    assert replace(again.update(make_batch(), recorded=expected), seconds=0.0) == replace(expected, seconds=0.0)


def test_a_damaged_adapter_is_told_from_another_s(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path
) -> None:
    folder = tmp_path / "save"
    trainer = make_trainer(lora_rank=4)
    trainer.update(make_batch())
    save, before = trainer.save(folder, step=0), trainer.weights_digest()
    for other, words in (
        (make_trainer(seed=9), "holds adapters of rank 4, and this learner trains all weights"),
        (make_trainer(lora_rank=2), "holds adapters of rank 4, and this learner trains adapters of rank 2"),
        (_of_another_base(), "belongs to another base"),
    ):
        digest = other.weights_digest()
        with pytest.raises(UserError, match=words):
            other.load(folder, save)
        with pytest.raises(UserError, match=words):
            other.pin_reference(folder)
        assert other.weights_digest() == digest
    whole = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunFailed, match="digest differs"):
        trainer.load(folder, save)
    assert trainer.weights_digest() == before


def _of_another_base() -> Trainer:
    model, _ = toy_model(1)
    return Trainer(model, options=Options(lr=1e-2, warmup_lr=1e-2, lora_rank=4, dtype="float32", threads=1))


def test_a_rank_above_the_smallest_layer_is_refused(make_trainer: MakeTrainer) -> None:
    with pytest.raises(UserError, match=r"learner.lora_rank is 17, and layer `layers.0.self_attn.k_proj` .* most 16"):
        make_trainer(lora_rank=17)


@DTYPES
def test_the_reference_is_the_adapter_switched_off(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path, dtype: str
) -> None:
    """The divergence is that from a copy of the base, although there is no copy, and the adapter is back after it."""
    samples = make_batch().samples
    trainer, base = make_trainer(lora_rank=4, dtype=dtype, kl_coef=0.5), make_trainer(dtype=dtype)
    model = trainer.model
    trainer.pin_reference()
    trainer.update(make_batch())
    learnt = trainer.logprobs(samples, temperature=1.0)
    assert trainer._reference is not None
    with trainer._reference.model() as reference:
        assert reference is model
        assert trainer.logprobs(samples, temperature=1.0) == base.logprobs(samples, temperature=1.0)
    assert trainer.logprobs(samples, temperature=1.0) == learnt
    save = trainer.save(tmp_path / "save", step=0)
    pulled = trainer.update(make_batch())
    assert pulled.reference_digest == make_trainer(lora_rank=4).weights_digest()
    later = make_trainer(lora_rank=4, dtype=dtype, kl_coef=0.5)
    later.pin_reference()
    later.load(tmp_path / "save", save)
    assert replace(later.update(make_batch()), seconds=0.0) == replace(pulled, seconds=0.0)
    assert later.pin_reference(tmp_path / "save") == save.weights_digest
    assert later.update(make_batch()).loss != trainer.update(make_batch()).loss, "another reference, another divergence"


@DTYPES
@pytest.mark.parametrize("rank", [1, 6, 16])
def test_a_reply_is_the_same_alone_and_in_company(dtype: str, rank: int) -> None:
    """The products with A and B depend on nothing else in the batch, whatever the rank."""
    model, tokenizer = toy_model(0)
    trainer = Trainer(
        model,
        options=Options(lr=1e-2, warmup_lr=1e-2, lora_rank=rank, dtype=dtype, threads=1),  # type: ignore[arg-type]
        tokenizer=tokenizer,
    )
    torch.manual_seed(0)
    for parameter in trainer._master.compute.values():
        parameter.data.normal_(std=0.1)
    requests = [
        Request(
            prompt_ids=tokenizer.encode("say " + "abc"[i % 3] * (1 + 11 * (i % 7))),
            sampling=Sampling(temperature=1.0, max_tokens=1 + (i * 13) % 20, stop=()),
            seed=i,
        )
        for i in range(16)
    ]

    def sampled(asked: Sequence[Request], *, max_rows: int) -> list[Completion]:
        async def play() -> list[Completion]:
            policy = LocalPolicy(model, tokenizer, version=lambda: 0, executor=thread, max_rows=max_rows)
            replies = await asyncio.gather(*[policy.sample(one) for one in asked])
            await policy.aclose()
            return list(replies)

        return asyncio.run(play())

    with ThreadPoolExecutor(1) as thread:
        crowd = sampled(requests, max_rows=16)
        scarce = sampled(requests[::-1], max_rows=3)[::-1]
    assert [(r.token_ids, r.logprobs) for r in crowd] == [(r.token_ids, r.logprobs) for r in scarce]
