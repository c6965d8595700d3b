"""Every family of decoders: the packed row equals transformers' own forward, and the sampler agrees with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from selfplay.errors import UserError
from selfplay.learner.batch import BLOCK_TOKENS, pack
from selfplay.learner.forward import score, supported
from selfplay.policy import Completion, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.types import Sample, Sampling, draw

VOCABULARY = len(CharTokenizer())
WINDOW = 12
PAD = 0

FAMILIES: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": WINDOW}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
    "gemma3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {"head_dim": 32, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "qwen3_moe": (
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    ),
    "mixtral": (MixtralConfig, MixtralForCausalLM, {"num_local_experts": 4, "sliding_window": None}),
}
DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma3")


def model_of(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Two random layers; equal in every call."""
    torch.set_num_threads(1)
    config_class, model_class, extra = FAMILIES[family]
    config = config_class(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 1024,
            "initializer_range": 0.15,
            "pad_token_id": PAD,
            "bos_token_id": None,
            "eos_token_id": 1,
        }
        | extra
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model: PreTrainedModel = model_class(config).eval()
    if dtype == torch.float64:
        # The grouped products of a mixture know no float64.
        model.config._experts_implementation = "eager"
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def sample(name: str, *turns: tuple[int, bool], common: int = 0) -> Sample:
    """Stretches of random tokens, each trained or not; those of the first `common` stretches depend on no name."""
    ids: list[int] = []
    trained: list[bool] = []
    for number, (length, carries_loss) in enumerate(turns):
        key = "common" if number < common else name
        ids += [draw(key, number, t) % VOCABULARY for t in range(length)]
        trained += [carries_loss] * length
    return Sample(
        trajectory_id=name,
        role="solver",
        group_id="g",
        token_ids=tuple(ids),
        trained=tuple(trained),
        sampler_logprobs=(0.0,) * len(ids),
        advantage=1.0,
    )


def shared() -> tuple[Sample, ...]:
    """Short and long replies behind one prompt; the long one needs several blocks, as the other prompt does."""
    first = [sample(f"a{i}", (9, False), (length, True), common=1) for i, length in enumerate([1, 5, 40, 7])]
    last = [sample(f"b{i}", (BLOCK_TOKENS + 30, False), (length, True)) for i, length in enumerate([3, 300])]
    return (*first, *last)


def turns() -> tuple[Sample, ...]:
    """Replies with untrained tool output between them; the first two share their first reply as well."""
    shape = ((20, False), (15, True), (30, False), (9, True), (4, False))
    return (
        sample("a", *shape, common=3),
        sample("b", *shape, common=3),
        sample("c", (20, False), (3, True), (150, False), (140, True), common=1),
    )


BATCHES: dict[str, Callable[[], tuple[Sample, ...]]] = {"shared prompts": shared, "several turns": turns}


def plain(model: PreTrainedModel, one: Sample) -> Tensor:
    """Log-probabilities of the trained tokens by transformers' own forward of this sample alone."""
    logits = model(input_ids=torch.tensor([one.token_ids])).logits[0].float()
    places = [t for t, carries_loss in enumerate(one.trained) if carries_loss]
    logprobs = torch.log_softmax(logits, dim=-1)
    return torch.stack([logprobs[t - 1, one.token_ids[t]] for t in places])


def packed(model: PreTrainedModel, samples: tuple[Sample, ...], *, recompute: bool = False) -> tuple[Tensor, ...]:
    """The same by the learner, in the order of `samples`, and the gradients of a weighed sum of them."""
    row = pack(samples, range(len(samples)))
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    sinks: dict[nn.Parameter, Tensor] = {
        p: torch.zeros(p.shape) for p in {embedding.weight, head.weight} if isinstance(p, nn.Parameter)
    }
    scores = score(model, row, temperature=1.0, sinks=sinks, recompute=recompute)
    parts = dict(zip(row.members, scores.logprob_N.split_with_sizes(list(row.lengths)), strict=True))
    logprobs = torch.cat([parts[member] for member in range(len(samples))])
    (logprobs * coefficients(len(logprobs))).sum().backward()
    gradients = [p.grad if p.grad is not None else sinks[p] for p in model.parameters()]
    model.zero_grad()
    return logprobs.detach(), *gradients


def coefficients(count: int) -> Tensor:
    return torch.linspace(-1.0, 2.0, count)


def reference(model: PreTrainedModel, samples: tuple[Sample, ...]) -> tuple[Tensor, ...]:
    """What `packed` should give."""
    logprobs = torch.cat([plain(model, one) for one in samples])
    (logprobs * coefficients(len(logprobs))).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    return logprobs.detach(), *[g for g in gradients if g is not None]


def error(found: Tensor, expected: Tensor) -> float:
    """Relative, in the Euclidean norm."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_row_is_the_plain_forward(family: str, batch: str) -> None:
    samples = BATCHES[batch]()
    found, expected = packed(model_of(family), samples)[0], reference(model_of(family), samples)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    # In float64, so that what is left is the layout's, not the arithmetic's.
    wide = torch.float64
    for got, wanted in zip(
        packed(model_of(family, wide), samples), reference(model_of(family, wide), samples), strict=True
    ):
        assert error(got, wanted) < 1e-6


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("family", DENSE)
def test_in_bfloat16_the_row_is_as_near_to_float32_as_the_plain_forward(family: str, batch: str) -> None:
    samples = BATCHES[batch]()
    rounded, exact = model_of(family, torch.bfloat16), model_of(family)
    for short, parameter in zip(rounded.parameters(), exact.parameters(), strict=True):
        parameter.data = short.data.float()
    truth = reference(exact, samples)
    theirs = [error(t, true) for t, true in zip(reference(rounded, samples), truth, strict=True)]
    ours = [error(t, true) for t, true in zip(packed(rounded, samples), truth, strict=True)]
    assert ours[0] < 1.5 * theirs[0]
    assert sum(ours) < 1.25 * sum(theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_computed_again_give_the_same_bits(family: str, dtype: torch.dtype) -> None:
    samples = (*shared(), *turns())
    kept, again = (packed(model_of(family, dtype), samples, recompute=recompute) for recompute in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def sampled(model: PreTrainedModel) -> list[tuple[Request, Completion]]:
    """Replies of several lengths, several to a prompt, by the sampler."""
    tokenizer = CharTokenizer()
    requests = [
        Request(
            prompt_ids=tokenizer.encode("say " + "abc" * (1 + 9 * (i // 4))),
            sampling=Sampling(max_tokens=3 + 12 * (i % 4)),
            seed=i,
        )
        for i in range(12)
    ]

    async def play(policy: LocalPolicy) -> list[Completion]:
        replies = await asyncio.gather(*[policy.sample(request) for request in requests])
        await policy.aclose()
        return replies

    with ThreadPoolExecutor(1) as thread:
        replies = asyncio.run(play(LocalPolicy(model, tokenizer, version=lambda: 0, executor=thread, max_rows=5)))
    return list(zip(requests, replies, strict=True))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-5), (torch.bfloat16, 0.12)], ids=str)
@pytest.mark.parametrize("family", DENSE)
def test_sampler_and_learner_agree(family: str, dtype: torch.dtype, bound: float) -> None:
    model = model_of(family, dtype)
    played = sampled(model)
    samples = [
        Sample(
            trajectory_id=str(i),
            role="solver",
            group_id="g",
            token_ids=request.prompt_ids + reply.token_ids,
            trained=(False,) * len(request.prompt_ids) + (True,) * len(reply.token_ids),
            sampler_logprobs=(0.0,) * len(request.prompt_ids) + reply.logprobs,
            advantage=1.0,
        )
        for i, (request, reply) in enumerate(played)
    ]
    row = pack(samples, range(len(samples)))
    with torch.no_grad():
        logprob_N = score(model, row, temperature=1.0, sinks={}).logprob_N
    expected_N = torch.tensor([lp for member in row.members for lp in played[member][1].logprobs])
    assert (logprob_N - expected_N).abs().max() < bound


def test_the_padding_s_embedding_learns_as_in_transformers() -> None:
    one = sample("a", (9, False), (30, True))
    model, samples = model_of("llama"), (replace(one, token_ids=(*one.token_ids[:4], PAD, *one.token_ids[5:])),)
    weight = next(i for i, (name, _) in enumerate(model.named_parameters()) if "embed_tokens" in name)
    for found in (packed(model, samples), reference(model, samples)):
        assert found[1 + weight][PAD].abs().max() == 0


def test_mixtures_of_experts_are_learnt_and_not_sampled() -> None:
    with ThreadPoolExecutor(1) as thread, pytest.raises(UserError, match="a mixture of experts"):
        LocalPolicy(model_of("qwen3_moe"), CharTokenizer(), version=lambda: 0, executor=thread)


def test_capped_attention_is_refused() -> None:
    capped = Gemma2ForCausalLM(
        Gemma2Config(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=1)
    )
    with pytest.raises(UserError, match="final_logit_softcapping"):
        supported(capped)
    capped.config.final_logit_softcapping = None
    with pytest.raises(UserError, match="attn_logit_softcapping"):
        supported(capped)
