from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.sandbox import channel as module
from selfplay.sandbox.channel import Channel, Lost, Refused, Stream, agent_source, command_fields, put_body


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(payload)) + payload


def with_stream(check: Callable[[Stream, socket.socket], Awaitable[None]]) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        stream = await Stream.over(ours)
        try:
            with theirs:
                await check(stream, theirs)
        finally:
            stream.abort()
            await asyncio.sleep(0)

    asyncio.run(main())


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=20)), max_size=8),
    size=st.integers(min_value=1, max_value=40),
)
def test_frames_come_apart_wherever_they_are_cut(frames: list[tuple[int, bytes]], size: int) -> None:
    sent = b"".join(frame(kind, payload) for kind, payload in frames)
    out = b"".join(payload for kind, payload in frames if kind == 1)

    async def check(stream: Stream, engine: socket.socket) -> None:
        for start in range(0, len(sent), size):
            engine.sendall(sent[start : start + size])
        engine.shutdown(socket.SHUT_WR)
        assert await stream.exactly(len(out)) == out
        with pytest.raises(Lost):
            await stream.exactly(1)

    with_stream(check)


def test_unknown_frame_is_a_breach() -> None:
    async def check(stream: Stream, engine: socket.socket) -> None:
        engine.sendall(frame(9, b"x"))
        with pytest.raises(Lost) as caught:
            await stream.exactly(1)
        assert caught.value.how == "breach"

    with_stream(check)


def test_lines_are_bounded() -> None:
    async def check(stream: Stream, engine: socket.socket) -> None:
        engine.sendall(frame(1, b"one\ntw") + frame(1, b"o\n") + frame(1, b"x" * 50))
        assert [await stream.line(10), await stream.line(10)] == [b"one", b"two"]
        with pytest.raises(Lost) as caught:
            await stream.line(10)
        assert caught.value.how == "breach"

    with_stream(check)


async def answered(engine: socket.socket, replies: bytes) -> bytes:
    """Play the agent: read the nonce, say hello, then `replies` with `NONCE` filled in."""
    loop = asyncio.get_running_loop()
    engine.setblocking(False)
    nonce = await loop.sock_recv(engine, 16)
    await loop.sock_sendall(engine, frame(1, nonce + b"=" + (5).to_bytes(4, "big") + b"ready"))
    await loop.sock_recv(engine, 1 << 16)
    await loop.sock_sendall(engine, frame(1, replies.replace(b"NONCE", nonce)))
    return nonce


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (b"NONCE=\0\0\0\x02ok", b"ok"),
        (b"NONCE!\0\0\0\x0644 not", Refused),
        (b"0123456789abcdef=\0\0\0\x02ok", Lost),
        (b"NONCE+\0\0\0\x02ok", Lost),
        (b"NONCE=\xff\xff\xff\xff", Lost),
    ],
    ids=["answer", "refusal", "wrong nonce", "unasked part", "too long"],
)
def test_only_the_agents_own_answers_count(reply: bytes, outcome: bytes | type[Exception]) -> None:
    async def check(stream: Stream, engine: socket.socket) -> None:
        channel = Channel(stream, "1")
        agent = asyncio.create_task(answered(engine, reply))
        await channel.hello()
        if isinstance(outcome, bytes):
            assert await channel.ask(b"s", [], seconds=5.0) == outcome
        else:
            with pytest.raises(outcome):
                await channel.ask(b"s", [], seconds=5.0)
            assert stream.ended == (outcome is Lost), "a line that was left in the middle is of no use"
        await agent

    with_stream(check)


def test_silence_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLACK_SECONDS", 0.1)

    async def check(stream: Stream, engine: socket.socket) -> None:
        channel = Channel(stream, "1")
        agent = asyncio.create_task(answered(engine, b""))
        await channel.hello()
        with pytest.raises(Lost) as caught:
            await channel.ask(b"s", [], seconds=0.1)
        assert caught.value.how == "late"
        assert stream.ended
        await agent

    with_stream(check)


def test_cancelled_request_closes_the_line() -> None:
    async def check(stream: Stream, engine: socket.socket) -> None:
        channel = Channel(stream, "1")
        agent = asyncio.create_task(answered(engine, b""))
        await channel.hello()
        asking = asyncio.create_task(channel.ask(b"s", [], seconds=50.0))
        await agent
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        assert stream.ended

    with_stream(check)


def test_commands_hold_no_nul_and_are_not_empty() -> None:
    assert command_fields(["a", "b"], cwd="/w", env={"X": "1"}) == ["/w", "2", "a", "b", "X=1"]
    for argv, env in ((["a\0b"], {}), ([], {}), (["a"], {"X": "\0"})):
        with pytest.raises(ValueError, match="NUL"):
            command_fields(argv, cwd="/", env=env)


def test_files_are_packed_with_their_sizes() -> None:
    assert put_body({"a": b"xyz"}) == (1).to_bytes(4, "big") + (3).to_bytes(8, "big") + b"axyz"


def test_agent_is_one_program_of_the_standard_library() -> None:
    compile(agent_source(), "agent", "exec")
    imports = [line for line in agent_source().splitlines() if line.startswith(("import ", "from "))]
    assert not any("selfplay" in line for line in imports)
    assert len(agent_source()) < 100_000, "one argument of a command is not much longer"
