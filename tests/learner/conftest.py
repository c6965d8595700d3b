"""A two-layer random Llama, a tokenizer of characters, and batches for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Sample, draw

VOCABULARY = 64


def tiny_model(*, seed: int = 0, tied: bool = True) -> LlamaForCausalLM:
    # Two threads on products this small wait for each other more than they compute.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


def make_samples(
    *, groups: int = 3, size: int = 4, prompt: int = 9, reply: int = 7, roles: Sequence[str] = ("solver",)
) -> tuple[Sample, ...]:
    """`groups` groups of `size` replies of different lengths behind one prompt each; advantages sum to zero."""
    samples: list[Sample] = []
    for g in range(groups):
        prompt_ids = tuple(2 + draw("prompt", g, t) % (VOCABULARY - 2) for t in range(prompt + g))
        for i in range(size):
            length = 1 + draw("length", g, i) % reply
            reply_ids = tuple(2 + draw("reply", g, i, t) % (VOCABULARY - 2) for t in range(length))
            samples.append(
                Sample(
                    trajectory_id=f"t{g}.{i}",
                    role=roles[g % len(roles)],
                    group_id=f"g{g}",
                    token_ids=prompt_ids + reply_ids,
                    trained=(False,) * len(prompt_ids) + (True,) * length,
                    sampler_logprobs=(0.0,) * len(prompt_ids) + (-4.0,) * length,
                    advantage=(1.0 if i % 2 else -1.0) * (1 + g),
                )
            )
    return tuple(samples)


def make_batch(samples: Sequence[Sample] | None = None, *, temperature: float = 1.0) -> Batch:
    chosen = make_samples() if samples is None else tuple(samples)
    return Batch(step=0, phase="play", samples=chosen, temperature=temperature)


@dataclass(frozen=True)
class Characters:
    """One id a character; 1 ends a reply."""

    eos_ids: frozenset[int] = frozenset({1})

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(2 + ord(c) % (VOCABULARY - 2) for c in text)

    def encode_chat(self, user: str) -> tuple[int, ...]:
        return self.encode(user)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids)


def make_trainer(*, seed: int = 0, tied: bool = True, **options: object) -> Trainer:
    chosen = Options(**({"lr": 1e-2, "warmup_lr": 1e-2, "dtype": "float32", "threads": 1} | options))  # type: ignore[arg-type]
    return Trainer(tiny_model(seed=seed, tied=tied), options=chosen, tokenizer=Characters())


TrainerFactory = Callable[..., Trainer]


@pytest.fixture(name="make_trainer")
def _make_trainer() -> TrainerFactory:
    return make_trainer


@pytest.fixture(name="make_batch")
def _make_batch() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture(name="make_samples")
def _make_samples() -> Callable[..., tuple[Sample, ...]]:
    return make_samples


@pytest.fixture(name="tiny_model")
def _tiny_model() -> Callable[..., LlamaForCausalLM]:
    return tiny_model
