"""Tiny random models of several families, and a local policy on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import CharTokenizer

FAMILIES: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 16}),
    "gemma3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {"head_dim": 16, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}


def _tiny(family: str, dtype: torch.dtype) -> PreTrainedModel:
    config_class, model_class, extra = FAMILIES[family]
    config = config_class(
        vocab_size=len(CharTokenizer()),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.15,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        **extra,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model: PreTrainedModel = model_class(config).to(dtype)
    model.train(False)
    return model


@pytest.fixture(scope="session")
def tiny() -> Callable[[str, torch.dtype], PreTrainedModel]:
    """`tiny("qwen3", torch.bfloat16)`: a fresh two-layer model over the toy alphabet, equal in every call."""
    return _tiny


@pytest.fixture
def local() -> Iterator[Callable[..., LocalPolicy]]:
    """`local(model, max_rows=8)`: a policy over `model` and the toy alphabet, on a thread of its own."""
    threads: list[ThreadPoolExecutor] = []

    def make(model: PreTrainedModel, **options: Any) -> LocalPolicy:
        threads.append(ThreadPoolExecutor(1))
        return LocalPolicy(model, CharTokenizer(), **{"version": lambda: 0, "executor": threads[-1], **options})

    yield make
    for thread in threads:
        thread.shutdown()
