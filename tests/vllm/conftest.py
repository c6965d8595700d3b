"""A real vLLM in an environment of its own, on the CPU; one engine for most tests, for it takes a while to start.

`SELFPLAY_VLLM_PYTHON` names the interpreter that has it; `SELFPLAY_REQUIRE_VLLM=1` turns a missing one into a failure.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from selfplay.errors import NotReady
from selfplay.learner.options import Options as Learning
from selfplay.learner.trainer import Trainer
from selfplay.policy.handover import Handover
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.policy.vllm import VLLMPolicy
from selfplay.policy.vllm_setup import Options, installed
from selfplay.samplers import outgoing

T = TypeVar("T")

HERE = Path(__file__).parent
CONTEXT = 256
TOKENIZER = CharTokenizer()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder's tests need vLLM."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            # note: one worker for all of them, so that there is one engine.
            item.add_marker(pytest.mark.xdist_group("vllm"))


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter that has vLLM."""
    named = os.environ.get("SELFPLAY_VLLM_PYTHON", "")
    try:
        if named:
            installed(Options(python=named))
            return named
        sentence = "SELFPLAY_VLLM_PYTHON names no interpreter with vLLM (CONTRIBUTING.md says how to make one)"
    except NotReady as error:
        sentence = error.message
    if os.environ.get("SELFPLAY_REQUIRE_VLLM") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)


class Bench:
    """A learner of the toy model and a real engine that samples from its weights, on one event loop."""

    def __init__(self, python: str, *, rank: int = 0, **options: Any) -> None:
        model, _ = toy_model(0, hidden=128, context=CONTEXT)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3.0 if parameter.dim() > 1 else 1.0)
        learning = Learning(lr=1e-2, warmup_lr=1e-2, dtype="float32", lora_rank=rank, threads=1)
        self.trainer = Trainer(model, options=learning, tokenizer=TOKENIZER)
        self.said: list[str] = []
        self.runner = asyncio.Runner()
        self.thread = ThreadPoolExecutor(1)
        self.policy = VLLMPolicy(
            Handover(outgoing(self.trainer, rank=rank)),
            TOKENIZER,
            version=lambda: self.trainer.policy_version,
            executor=self.thread,
            context=CONTEXT,
            vocabulary=len(TOKENIZER),
            dtype="float32",
            options=Options(**{"python": python, "kv_gb": 0.25, **options}),
            say=self.said.append,
        )

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        """On the loop that the engine belongs to."""
        return self.runner.run(job)

    def close(self) -> None:
        """The engine, the loop, the thread."""
        self.run(self.policy.aclose())
        self.runner.close()
        self.thread.shutdown()


@pytest.fixture(scope="session")
def bench(python: str) -> Iterator[Bench]:
    """One engine for all tests that leave it alive."""
    one = Bench(python)
    yield one
    one.close()


@pytest.fixture
def fresh(python: str) -> Iterator[Callable[..., Bench]]:
    """`fresh(rank=4)`: an engine of the test's own."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(python, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
