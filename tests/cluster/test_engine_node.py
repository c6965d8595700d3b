"""What runs in an engine's actor, without an actor: a copy of the learner's model samples what the learner's would."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from selfplay.cluster.engine_node import EngineNode, Given
from selfplay.errors import RunFailed, UserError
from selfplay.learner import copies
from selfplay.learner.lora import speak_as
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.policy import Completion, Policy, Request
from selfplay.policy.by_role import sampler
from selfplay.policy.parcels import Parcel
from selfplay.policy.toy import toy_model
from selfplay.types import Example, Sampling

ROLES = ("solver", "proposer")
REQUESTS = [
    Request(prompt_ids=(4, 5, 6 + i % 5), sampling=Sampling(max_tokens=20), seed=i, role=ROLES[i % 2]) for i in range(8)
]


class Pair:
    """A learner, its own sampler, and a node with a copy."""

    def __init__(self, *, rank: int, roles: tuple[str, ...], dtype: Any) -> None:
        model, tokenizer = toy_model(0)
        self.rank = rank
        self.thread = ThreadPoolExecutor(1)
        options = Options(
            lr=1e-2, warmup_lr=1e-2, dtype=dtype, lora_rank=rank, lora_roles=roles, threads=1, device="cpu"
        )
        self.trainer = Trainer(model, options=options, tokenizer=tokenizer)
        self.here = sampler(
            model,
            tokenizer,
            roles=roles,
            speak_as=speak_as,
            version=lambda: self.trainer.policy_version,
            executor=self.thread,
            max_rows=4,
        )
        self.node = EngineNode()
        self.given = Given(
            tokenizer=tokenizer,
            context=256,
            vocabulary=len(tokenizer),
            max_rows=4,
            threads=1,
            model=copies.Form.of(model, lora_rank=rank, lora_roles=roles),
        )

    async def begin(self) -> None:
        """The node has what no update changes."""
        assert await self.asked("begin", self.given) == copies.arithmetic()
        await self.bring(copies.fixed(self.trainer.model, lora_rank=self.rank), "keep")

    async def bring(self, tensors: Any, method: str, **named: Any) -> None:
        """Weights, whose digests are compared."""
        parcel = Parcel.of(tensors)
        for start, piece in parcel.pieces():
            await self.asked("take", start, piece, size=parcel.size)
        assert await self.asked(method, parcel.entries, **named) == parcel.digests

    async def renew(self) -> None:
        """The learner's weights of now."""
        changed = copies.trained(self.trainer.model, lora_rank=self.rank)
        await self.bring(changed, "load", version=self.trainer.policy_version)

    async def asked(self, method: str, *words: Any, **named: Any) -> Any:
        """What the node answers."""
        done, value = await self.node.answer(method, *words, **named)
        if not done:
            raise value
        return value

    def learn(self) -> None:
        """One update."""
        examples = [Example(role=role, source="test", prompt="abc", replies=("zzz",)) for role in ROLES]
        self.thread.submit(self.trainer.imitate, examples, index=0, total=1).result()

    async def close(self) -> None:
        """Both samplers."""
        await self.here.aclose()
        await self.node.answer("aclose")


async def played(policy: Policy) -> list[Completion]:
    replies = await asyncio.gather(*(policy.sample(request) for request in REQUESTS))
    return [replace(reply, seconds=0.0) for reply in replies]


@pytest.fixture(params=[(0, (), "bfloat16"), (4, (), "float32"), (4, ROLES, "bfloat16")])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """All weights, one adapter, an adapter for each role."""
    for name, usual in (("OMP_NUM_THREADS", "1"), ("OMP_WAIT_POLICY", "PASSIVE")):
        # note: an actor sets them for its process, and here they are set back.
        monkeypatch.setenv(name, os.environ.get(name, usual))
    rank, roles, dtype = request.param
    before = torch.get_num_threads()
    one = Pair(rank=rank, roles=roles, dtype=dtype)
    yield one
    one.thread.shutdown()
    torch.set_num_threads(before)


def test_a_copy_samples_the_same_before_and_after_an_update(pair: Pair) -> None:
    async def main() -> None:
        await pair.begin()
        seen = []
        for version in (0, 1, 2):
            await pair.renew()
            mine = await played(pair.here)
            theirs = await asyncio.gather(*(pair.asked("sample", request) for request in REQUESTS))
            assert [replace(reply, seconds=0.0) for reply in theirs] == mine
            assert {reply.policy_version for reply in theirs} == {(version, version)}
            seen.append([reply.logprobs for reply in mine])
            pair.learn()
        assert seen[0] != seen[1] != seen[2]
        await pair.close()

    asyncio.run(main())


def test_what_fails_is_answered(pair: Pair) -> None:
    async def main() -> None:
        await pair.begin()
        await pair.renew()
        with pytest.raises(UserError, match="prompt is empty"):
            await pair.asked("sample", Request(prompt_ids=(), sampling=Sampling(), seed=0))
        with pytest.raises(RunFailed, match="KeyError: 'nothing'"):
            await pair.bring({"nothing": torch.zeros(2)}, "load", version=9)
        assert await pair.asked("told") == []
        await pair.close()

    asyncio.run(main())
