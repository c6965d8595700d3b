"""The contract of verl's agent loops, with classes that have what verl's have; verl itself is not run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from selfplay.doors.verl import Play, ServedPolicy, fields_of, loop_class
from selfplay.errors import RunFailed
from selfplay.policy import Request
from selfplay.policy.toy import EOS, CharTokenizer
from selfplay.types import Sampling, Stop, Trajectory, Turn, Verdict

TOKENIZER = CharTokenizer()


@dataclass
class Tokens:
    """As verl's TokenOutput."""

    token_ids: list[int]
    log_probs: list[float] | None = None


class Servers:
    """As verl's server manager: says `ab` and ends."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Tokens:
        self.asked.append({"id": request_id, "prompt": prompt_ids, **sampling_params})
        ids = [*TOKENIZER.encode("ab"), EOS][: sampling_params["max_tokens"]]
        return Tokens(token_ids=ids, log_probs=[-0.5] * len(ids) if sampling_params["logprobs"] else None)


class Base:
    """As verl's AgentLoopBase."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, processor: Any, **given: Any) -> None:
        self.server_manager = server_manager


def judged(reward: float | None) -> Verdict:
    return Verdict(
        trajectory_id="t", stage="judge", valid=True, passed=None, reward=reward, reason="passed", why="it is so"
    )


async def two_turns(policy: ServedPolicy, row: Mapping[str, Any]) -> tuple[Trajectory, Verdict]:
    prompt = Turn(speaker="prompt", token_ids=TOKENIZER.encode(row["raw_prompt"]))
    sampling = Sampling(max_tokens=8)
    first = await policy.sample(Request(prompt_ids=prompt.token_ids, sampling=sampling, seed=0))
    told = Turn(speaker="tool", token_ids=TOKENIZER.encode("ok"))
    onward = prompt.token_ids + first.token_ids + told.token_ids
    second = await policy.sample(Request(prompt_ids=onward, sampling=sampling, seed=1))
    replies = [Turn(speaker="policy", token_ids=one.token_ids, logprobs=one.logprobs) for one in (first, second)]
    played = Trajectory(
        id="t",
        step=0,
        stage="attempt",
        role="solver",
        subject_id="s",
        index=0,
        turns=(prompt, replies[0], told, replies[1]),
        stop=Stop.DONE,
        policy_version=(0, 0),
    )
    return played, judged(row["worth"])


def run(play: Play, servers: Servers, **row: Any) -> Any:
    made = loop_class(Base, dict, play=play, tokenizer=TOKENIZER)(None, servers, None, None, dataset_cls=None)
    return asyncio.run(made.run({"temperature": 0.7}, **row))


def test_a_play_becomes_ids_a_mask_and_a_score() -> None:
    servers = Servers()
    found = run(two_turns, servers, raw_prompt="hi", worth=1.0)
    said, told = [*TOKENIZER.encode("ab"), EOS], list(TOKENIZER.encode("ok"))
    assert found["prompt_ids"] == list(TOKENIZER.encode("hi"))
    assert found["response_ids"] == [*said, *told, *said]
    assert found["response_mask"] == [1, 1, 1, 0, 0, 1, 1, 1]
    assert found["response_logprobs"] == [-0.5, -0.5, -0.5, 0.0, 0.0, -0.5, -0.5, -0.5]
    assert (found["reward_score"], found["num_turns"]) == (1.0, 4)
    first, second = servers.asked
    assert first["id"] == second["id"], "the same server has the prefix"
    assert (first["temperature"], first["max_tokens"]) == (0.7, 8)
    assert second["prompt"] == found["prompt_ids"] + said + told


def test_what_nobody_decided_has_no_score() -> None:
    with pytest.raises(RunFailed, match="no reward: it is so"):
        run(two_turns, Servers(), raw_prompt="hi", worth=None)
    played, _ = asyncio.run(two_turns(ServedPolicy(Servers(), TOKENIZER, sampling={}), {"raw_prompt": "a", "worth": 0}))
    bare = Trajectory(**{name: getattr(played, name) for name in Trajectory.__slots__} | {"turns": played.turns[:1]})
    with pytest.raises(RunFailed, match="has no reply"):
        fields_of(bare, judged(1.0))


def test_a_reply_is_cut_and_stopped_as_the_request_says() -> None:
    servers = Servers()
    policy = ServedPolicy(servers, TOKENIZER, sampling={"temperature": 1.0}, max_context=3)
    request = Request(prompt_ids=(5,), sampling=Sampling(max_tokens=9, stop=("x",)), seed=0)
    reply = asyncio.run(policy.sample(request))
    assert (len(reply.token_ids), reply.stop) == (2, Stop.TOKENS)
    assert servers.asked[0]["stop"] == ["x"]
    assert servers.asked[0]["include_stop_str_in_output"] is True


def test_a_server_without_log_probabilities_is_said_so() -> None:
    class Silent(Servers):
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Tokens:
            return Tokens(token_ids=[EOS])

    policy = ServedPolicy(Silent(), TOKENIZER, sampling={})
    with pytest.raises(RunFailed, match="0 log-probabilities for 1 ids"):
        asyncio.run(policy.sample(Request(prompt_ids=(5,), sampling=Sampling(), seed=0)))
