"""What runs in an actor, without an actor: what a sandbox node holds, and a rank that does not meet the others."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
import torch.distributed as dist

from selfplay.cluster.head import reach
from selfplay.cluster.node import Given, RankNode, SandboxNode
from selfplay.sandbox import SandboxInfraError, SandboxSpec


class Ended(BaseException):
    """In the place of the end of the process."""


def test_what_was_served_is_held_as_long_as_it_is_open() -> None:
    async def main() -> None:
        node = SandboxNode(Given(kind="local", recipe=None, wheels=()))
        await node.begin()
        sandbox = await node.make(SandboxSpec(name="python"), pooled=False)
        first, second = [await node.inside(sandbox, "serve", ["cat"]) for _ in range(2)]
        for number in (first, second):
            assert await node.ask(number, b"on", timeout_seconds=60.0) == b"on"
        for _ in range(2):
            await node.end(first)
        assert list(node._served) == [second]
        await node.inside(sandbox, "close")
        assert node._served == {}
        await node.end(second)
        for number in (first, second):
            with pytest.raises(SandboxInfraError, match="was closed"):
                await node.ask(number, b"late", timeout_seconds=60.0)
        await node.overall("aclose")

    asyncio.run(main())


def test_a_rank_that_cannot_meet_the_others_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))
    monkeypatch.setattr(os, "_exit", end)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(Ended) as ended:
        RankNode().meet("127.0.0.1", port, rank=1, size=2)
    assert ended.value.args == (1,)
    assert "ConnectionRefusedError" in capsys.readouterr().err


def test_where_ranks_meet_bears_a_connection_that_says_nothing() -> None:
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    reach(f"127.0.0.1:{store.port}", seconds=60.0)
    there = dist.TCPStore("127.0.0.1", store.port, 2, is_master=False, wait_for_workers=False)
    there.set("word", "met")
    assert store.get("word") == b"met"
