"""The local sampler where its model is on a card: all it computes with is there, and its replies are the same.

The card is one that only refuses what a real one would (`tests.card`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from transformers import PreTrainedModel

from selfplay.policy import Completion, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.types import Sampling
from tests.card import CARD, Card

TOKENIZER = CharTokenizer()
ASKED = [
    Request(
        prompt_ids=TOKENIZER.encode("say " + "ab"[i % 2] * (1 + 9 * (i % 3))),
        sampling=Sampling(temperature=(0.0, 0.7, 1.0)[i % 3], max_tokens=3 + 5 * (i % 4)),
        seed=i,
    )
    for i in range(9)
]


def replies(policy: LocalPolicy) -> Sequence[Completion]:
    async def all_of_them() -> Sequence[Completion]:
        try:
            return await asyncio.gather(*(policy.sample(one) for one in ASKED))
        finally:
            await policy.aclose()

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_sampler_on_a_card_replies_the_same(
    family: str,
    dtype: torch.dtype,
    tiny: Callable[[str, torch.dtype], PreTrainedModel],
    local: Callable[..., LocalPolicy],
) -> None:
    expected = replies(local(tiny(family, dtype), max_rows=4))
    model, card, there = tiny(family, dtype), Card(), ExitStack()
    with ThreadPoolExecutor(1) as thread:
        # note: there is a card on one thread only, as there is one torch thread.
        thread.submit(there.enter_context, card()).result()
        thread.submit(model.to, CARD).result()  # type: ignore[arg-type]
        policy = thread.submit(LocalPolicy, model, TOKENIZER, version=lambda: 0, executor=thread, max_rows=4).result()
        found = replies(policy)
        thread.submit(there.close).result()
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert [one.logprobs for one in found] == [one.logprobs for one in expected]
    assert card.operations > 1000
