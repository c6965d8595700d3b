"""Given replies, under the request's rules."""

from __future__ import annotations

import asyncio

import pytest

from selfplay.errors import RunFailed, UserError
from selfplay.policy import Completion, Request
from selfplay.policy.scripted import LOGPROB, Script, ScriptedPolicy
from selfplay.policy.toy import EOS, CharTokenizer
from selfplay.types import Sampling, Stop

TOKENIZER = CharTokenizer()


def reply(script: Script, text: str = "abc", **sampling: object) -> Completion:
    """The first reply of `script`."""
    policy = ScriptedPolicy(script, tokenizer=TOKENIZER, max_context=12)
    asked = Sampling(**{"max_tokens": 64, **sampling})
    return asyncio.run(policy.sample(Request(prompt_ids=TOKENIZER.encode(text), sampling=asked, seed=0)))


def test_a_list_is_played_in_order_and_ends() -> None:
    policy = ScriptedPolicy(["one", "two"], tokenizer=TOKENIZER)
    asked = Request(prompt_ids=(5,), sampling=Sampling(), seed=0)
    texts = [TOKENIZER.decode(asyncio.run(policy.sample(asked)).token_ids) for _ in range(2)]
    assert texts == ["one", "two"]
    with pytest.raises(RunFailed, match="no reply left"):
        asyncio.run(policy.sample(asked))
    assert not policy.capabilities.trains


def test_a_function_sees_the_prompt() -> None:
    answered = reply(lambda prompt: prompt[::-1])
    assert answered.token_ids == (*TOKENIZER.encode("cba"), EOS)
    assert answered.logprobs == (LOGPROB,) * 4
    assert answered.stop is Stop.DONE


@pytest.mark.parametrize(
    ("sampling", "text", "stop"),
    [
        ({"max_tokens": 3}, "xyz", Stop.TOKENS),
        ({"stop": ("z ",)}, "xyz ", Stop.DONE),
        ({}, "xyz uvw x", Stop.CONTEXT),
    ],
)
def test_the_rules_of_the_request_hold(sampling: dict[str, object], text: str, stop: Stop) -> None:
    answered = reply(["xyz uvw xyz uvw"], **sampling)
    assert (TOKENIZER.decode(answered.token_ids), answered.stop) == (text, stop)


def test_a_prompt_without_room_is_refused() -> None:
    with pytest.raises(UserError, match="12 tokens"):
        reply(["a"], text="a" * 12)
