"""The packed row gives what each sample gives alone, and refuses models that it would get wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import GraniteConfig, GraniteForCausalLM, LlamaForCausalLM

from selfplay.errors import UserError
from selfplay.learner.batch import pack
from selfplay.learner.forward import _products, score, supported
from selfplay.types import Sample

MakeSamples = Callable[..., tuple[Sample, ...]]
MakeModel = Callable[..., LlamaForCausalLM]


def alone(model: LlamaForCausalLM, sample: Sample, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies by transformers' own forward of one unshared, unpadded sequence."""
    ids = torch.tensor([sample.token_ids])
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0].double() / temperature, dim=-1)
    places = [t for t, trained in enumerate(sample.trained) if trained]
    chosen = torch.stack([logprobs[t - 1, sample.token_ids[t]] for t in places])
    entropy = torch.stack([-(logprobs[t - 1].exp() * logprobs[t - 1]).sum() for t in places])
    return chosen, entropy


def by_member(values: Tensor, lengths: tuple[int, ...], members: tuple[int, ...]) -> dict[int, Tensor]:
    return dict(zip(members, torch.split(values, list(lengths)), strict=True))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("prompt", "reply", "size", "temperature"), [(9, 7, 4, 1.0), (300, 150, 2, 0.7)])
def test_a_shared_row_equals_each_sample_alone(
    tiny_model: MakeModel, make_samples: MakeSamples, prompt: int, reply: int, size: int, temperature: float, tied: bool
) -> None:
    # In float64, so that what is left is the layout's, not the arithmetic's.
    model = tiny_model(tied=tied).eval().double()
    samples = make_samples(groups=2, prompt=prompt, reply=reply, size=size)
    row = pack(samples, range(len(samples)))
    sinks = {
        p: torch.zeros_like(p) for p in (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    }
    scores = score(model, row, temperature=temperature, sinks=sinks)
    (scores.logprob_N * torch.arange(len(row.targets))).sum().backward()
    found = {n: p.grad.clone() if p.grad is not None else sinks[p] for n, p in model.named_parameters()}
    model.zero_grad()

    logprobs = by_member(scores.logprob_N, row.lengths, row.members)
    entropies = by_member(scores.entropy_N, row.lengths, row.members)
    coefficients = by_member(torch.arange(len(row.targets)), row.lengths, row.members)
    for member, sample in enumerate(samples):
        expected, entropy = alone(model, sample, temperature=temperature)
        torch.testing.assert_close(logprobs[member], expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(entropies[member], entropy, atol=1e-6, rtol=0)
        (expected * coefficients[member]).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-6 * parameter.grad.abs().max().item(), rtol=0)


def test_the_row_does_not_change_what_the_sampler_set(tiny_model: MakeModel, make_samples: MakeSamples) -> None:
    model = tiny_model()
    before = model.config._attn_implementation
    score(model, pack(make_samples(), range(3)), temperature=1.0, sinks={})
    assert model.config._attn_implementation == before


def test_without_sinks_gradients_reach_every_parameter(tiny_model: MakeModel, make_samples: MakeSamples) -> None:
    model = tiny_model(tied=False)
    score(model, pack(make_samples(), range(3)), temperature=1.0, sinks={}).logprob_N.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_scores_of_bfloat16_are_those_of_float32() -> None:
    query_KQH, key_KLH = torch.randn(2, 30, 64).bfloat16(), torch.randn(2, 40, 64).bfloat16()
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    found_KQL = _products(query_KQH, key_KLH.transpose(1, 2))
    assert found_KQL.dtype == torch.float32
    torch.testing.assert_close(
        found_KQL.double(), query_KQH.double() @ key_KLH.double().transpose(1, 2), atol=2e-5, rtol=0
    )
    assert matmul.fp32_precision == before


SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": None,
}


def test_a_sample_longer_than_the_context_is_refused(tiny_model: MakeModel, make_samples: MakeSamples) -> None:
    samples = make_samples(groups=1, size=1, prompt=511, reply=1)
    assert len(samples[0].token_ids) == 512
    score(tiny_model(), pack(samples, [0]), temperature=1.0, sinks={})
    samples = make_samples(groups=1, size=1, prompt=513, reply=1)
    with pytest.raises(UserError, match="a sample has 514 tokens, and the model's context 512"):
        score(tiny_model(), pack(samples, [0]), temperature=1.0, sinks={})


def test_models_with_a_scaled_head_are_refused() -> None:
    with pytest.raises(UserError, match="logits_scaling"):
        supported(GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=8.0)))
