"""What a sandbox node holds of the trees that it was brought, and what makes room."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from selfplay.cluster.archives import Archives
from selfplay.cluster.node import Given, SandboxNode
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.lifecycle import tar_of


def opened(archives: Archives, name: str) -> bytes:
    content = Path(archives.hold(name)).read_bytes()
    archives.release(name)
    return content


def test_what_was_used_least_lately_makes_room() -> None:
    archives = Archives(room_bytes=3, kept=2)
    assert [archives.take(name, name.encode()) for name in "abc"] == [(), (), ()]
    assert opened(archives, "a") == b"a"
    assert archives.take("d", b"d") == ("b",), "a was used after it"
    assert archives.take("d", b"d") == (), "it is here"
    assert archives.take("e", b"12345") == ("c", "a"), "the last two stay, however large"
    for name in "abc":
        with pytest.raises(SandboxInfraError, match=f"archive {name} made room for others"):
            archives.hold(name)
    assert [opened(archives, name) for name in "de"] == [b"d", b"12345"]


def test_what_is_in_use_stays_until_everybody_let_go() -> None:
    archives = Archives(room_bytes=0, kept=1)
    archives.take("a", b"a")
    assert archives.hold("a") == archives.hold("a")
    assert archives.take("b", b"b") == ()
    archives.release("a")
    assert archives.take("c", b"c") == ("b",)
    assert opened(archives, "a") == b"a"
    archives.release("a")
    assert archives.take("d", b"d") == ("c", "a")


def test_a_node_holds_the_trees_of_open_sandboxes() -> None:
    async def main() -> None:
        node = SandboxNode(Given(kind="local", recipe=None, wheels=()))
        node._archives = Archives(room_bytes=0, kept=1)
        await node.begin()
        names = []
        for number in range(3):
            with tar_of({"a.py": b"X = %d\n" % number}) as path:
                content = Path(path).read_bytes()
            names.append(hashlib.sha256(content).hexdigest())
            assert await node.take_archive(names[-1], content) == (() if number < 2 else (names[1],))
            if number == 0:
                sandbox = await node.make(SandboxSpec(name="python", archive=names[0]), pooled=False)
        await node.inside(sandbox, "put", {"a.py": b"X = 9\n"})
        told = await node.inside(sandbox, "diff", None)
        assert b"-X = 0" in told.patch
        assert b"-X = 2" in (await node.inside(sandbox, "diff", names[2])).patch
        with pytest.raises(SandboxInfraError, match="made room"):
            await node.inside(sandbox, "diff", names[1])
        with pytest.raises(SandboxInfraError, match="made room"):
            await node.make(SandboxSpec(name="python", archive=names[1]), pooled=False)
        await node.inside(sandbox, "close")
        assert await node.take_archive("other", b"no tar") == (names[0], names[2])
        with pytest.raises(SandboxInfraError):
            await node.make(SandboxSpec(name="python", archive="other"), pooled=False)
        assert await node.take_archive("more", b"") == ("other",), "what nothing was made of is let go"
        await node.overall("aclose")

    asyncio.run(main())
