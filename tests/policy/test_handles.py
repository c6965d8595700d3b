"""Weights that engine and learner share on one card, and sleep: the exact calls, without a card.

Handles of a card's memory stand here for the tensors' bytes, or for their names; only a card makes real ones.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.errors import RunFailed
from selfplay.policy import Rests, handles, vllm_child
from selfplay.policy.handover import Handover, Outgoing
from selfplay.policy.vllm import VLLMPolicy
from tests.policy.test_vllm import Bench, bench, request

__all__ = ["bench"]

MakeBench = Callable[..., Bench]

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_an_update_is_what_vllms_engine_takes() -> None:
    text = handles.packed(TENSORS, card="GPU-1", reduce=lambda tensor: (len, (int(tensor.numel()), "handle")))
    assert pickle.loads(base64.b64decode(text)) == {
        "names": ["a", "b"],
        "dtype_names": ["float32", "bfloat16"],
        "shapes": [[2, 3], [4]],
        "ipc_handles": [{"GPU-1": (6, "handle")}, {"GPU-1": (4, "handle")}],
    }


def test_the_engines_workers_are_called_in_vllms_order_and_begun_once() -> None:
    called: list[tuple[str, Mapping[str, Any]]] = []
    named = {id(tensor): name for name, tensor in TENSORS.items()}
    text = handles.packed(TENSORS, card="GPU-1", reduce=lambda tensor: (None, named[id(tensor)]))
    transfer = vllm_child.Transfer(
        lambda name, values: called.append((name, values)), rebuild=lambda handle: TENSORS[handle["GPU-1"]]
    )
    found = transfer.take(text)
    assert found == {name: hashlib.sha256(raw(tensor)).hexdigest() for name, tensor in TENSORS.items()}
    update = {"update_info": pickle.loads(base64.b64decode(text))}
    each = [("start_weight_update", {}), ("update_weights", update), ("finish_weight_update", {})]
    assert called == [("init_weight_transfer_engine", {"init_info": {"packed": False}}), *each]
    called.clear()
    transfer.take(text)
    assert called == each


def test_an_update_that_the_engine_does_not_take_is_not_said_to_have_arrived() -> None:
    def call(name: str, values: Mapping[str, Any]) -> None:
        if name == "update_weights":
            raise ValueError("IPC handle not found for GPU UUID")

    text = handles.packed(TENSORS, card="GPU-1", reduce=lambda tensor: (None, ()))
    with pytest.raises(ValueError, match="GPU UUID"):
        vllm_child.Transfer(call, rebuild=lambda handle: TENSORS["a"]).take(text)


class OnCard(Handover):
    """A hand-over whose tensors count as on a card; its handles are their bytes."""

    damaged = False

    def __init__(self, outgoing: Outgoing) -> None:
        super().__init__(outgoing)
        self.copied: list[bool] = []

    @property
    def on_card(self) -> bool:
        return True

    def offer(self, *, copied: bool) -> tuple[str, dict[str, str]]:
        self.copied.append(copied)
        tensors = self._outgoing.tensors()
        sent = {name: hashlib.sha256(raw(tensor)).hexdigest() for name, tensor in tensors.items()}
        cut = 1 if self.damaged else 0
        return handles.packed(tensors, card="GPU-1", reduce=lambda tensor: (None, raw(tensor)[cut:])), sent


def near(one: Bench) -> OnCard:
    one.handover.close()
    one.handover = made = OnCard(Outgoing(tensors=lambda: dict(one.model.named_parameters()), config_json="{}"))
    return made


def played(policy: VLLMPolicy, job: Callable[[], Any]) -> None:
    async def all_of_it() -> None:
        try:
            await job()
        finally:
            await policy.aclose()

    asyncio.run(asyncio.wait_for(all_of_it(), 120.0))


def asked(one: Bench) -> list[str]:
    return (one.folder / "asked").read_text().split()


def test_an_engine_on_the_learners_card_is_offered_the_tensors(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench()
    handover = near(one)
    monkeypatch.setattr(handover, "write", lambda: pytest.fail("nothing is written"))
    policy = one.policy()

    async def job() -> None:
        await policy.sample(request())
        one.version = 1
        assert (await policy.sample(request())).policy_version == (1, 1)
        one.version, handover.damaged = 2, True
        with pytest.raises(RunFailed, match="other weights than the learner"):
            await policy.sample(request())

    played(policy, job)
    assert asked(one) == ["weights", "sample", "weights", "sample", "weights"]
    assert handover.copied == [True, True, True], "an update may come before the engine has read"


def test_an_engine_on_another_card_is_given_files(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    one = bench()
    written: list[Path] = []
    handover = near(one)
    before = handover.write
    monkeypatch.setattr(handover, "write", lambda: (written.append(handover.folder), before())[1])
    policy = one.policy(replicas=2, cards="0 1")

    async def job() -> None:
        await policy.sample(request())
        while not all(engine.held == 0 for engine in policy.engines):  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.05)

    played(policy, job)
    assert len(written) == 1


def test_engines_sleep_before_the_learner_works_and_wake_with_its_weights(bench: MakeBench) -> None:
    one = bench()
    handover = near(one)
    policy = one.policy(sleep=True)
    assert isinstance(policy, Rests)

    async def job() -> None:
        await policy.rest()
        slow = asyncio.create_task(policy.sample(request(tokens=9)))
        await asyncio.sleep(0)
        await slow
        await policy.rest()
        await policy.rest()
        # note: the same version, after an update that was skipped: the engine has forgotten its weights all the same.
        await policy.sample(request())

    played(policy, job)
    assert asked(one) == ["weights", "sample", "sleep", "weights", "sample"]
    assert handover.copied == [False, False]


def test_without_the_constant_nothing_sleeps(bench: MakeBench) -> None:
    one = bench()
    policy = one.policy()

    async def job() -> None:
        await policy.sample(request())
        await policy.rest()
        await policy.sample(request())

    played(policy, job)
    assert asked(one) == ["weights", "sample", "sample"]


def test_an_engine_that_dies_asleep_is_replaced(bench: MakeBench) -> None:
    one = bench("dies asleep", "plain")
    policy = one.policy(sleep=True)

    async def job() -> None:
        await policy.sample(request())
        await policy.rest()
        await policy.sample(request())

    played(policy, job)
    assert one.launches == 2
    assert "ended with exit code 7" in one.said[1]
