"""The conformance checks of what lasts: served processes, differences, sweeping, the pool, and being listed.

Not covered: single commands and files (`conformance`), what only isolated backends must do (`isolation`).
"""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from selfplay.sandbox import ChannelLost, Sandbox, SandboxInfraError, SandboxProvider, SandboxSpec, Served
from selfplay.sandbox.difference import difference
from selfplay.sandbox.probes import SECONDS, Check, assert_gone, assert_raises, run_python, sandbox_of, sh
from selfplay.sandbox.process import Owner

SERVER = """
import os, sys, time
for line in sys.stdin.buffer:
    word, _, rest = line.strip().partition(b" ")
    if word == b"die":
        os.kill(os.getpid(), 9)
    if word == b"sleep":
        time.sleep(float(rest))
    if word == b"long":
        line = b"x" * int(rest) + b"\\n"
    if word == b"everybody":
        os.kill(-1, 9)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""
"""Answers a line with itself, or misbehaves as it is told."""


async def _served(sandbox: Sandbox, provider: SandboxProvider) -> Served:
    """`SERVER`, after its first answer."""
    served = await sandbox.serve([provider.python, "-I", "-u", "-c", SERVER])
    assert await served.ask(b"ready", timeout_seconds=SECONDS) == b"ready"
    return served


async def _on(sandbox: Sandbox) -> None:
    result = await sh(sandbox, "echo on")
    assert (result.exit_code, result.stdout) == (0, "on\n"), result


async def served_process_answers(provider: SandboxProvider) -> None:
    """Line by line, long ones too, until it is closed; then commands run again."""
    async with sandbox_of(provider) as sandbox:
        served = await _served(sandbox, provider)
        for line in (b"", b"one", b"\xff\x00two", b"y" * 300_000):
            assert await served.ask(line, timeout_seconds=SECONDS) == line
        await served.close()
        await served.close()
        await assert_raises(SandboxInfraError, served.ask(b"late", timeout_seconds=SECONDS))
        await _on(sandbox)
        again = await _served(sandbox, provider)
        await again.close()


async def served_process_that_ends_is_lost(provider: SandboxProvider) -> None:
    """One that kills itself is the candidate's doing, it stays lost, and the sandbox goes on."""
    async with sandbox_of(provider) as sandbox:
        served = await _served(sandbox, provider)
        await assert_raises(ChannelLost, served.ask(b"die", timeout_seconds=SECONDS))
        await assert_raises(ChannelLost, served.ask(b"still there?", timeout_seconds=SECONDS))
        await served.close()
        await _on(sandbox)
        missing = await sandbox.serve(["no-such-command"])
        await assert_raises(ChannelLost, missing.ask(b"hello", timeout_seconds=SECONDS))
        await missing.close()


async def served_answer_that_is_too_long_is_lost(provider: SandboxProvider) -> None:
    """More bytes than the limit, with or without an end of line, end the process."""
    async with sandbox_of(provider) as sandbox:
        served = await _served(sandbox, provider)
        assert len(await served.ask(b"long 1000", timeout_seconds=SECONDS, limit=1000)) == 1000
        await assert_raises(ChannelLost, served.ask(b"long 200000", timeout_seconds=SECONDS, limit=1000))
        await served.close()
        endless = await sandbox.serve(["sh", "-c", "cat /dev/zero"])
        await assert_raises(ChannelLost, endless.ask(b"", timeout_seconds=SECONDS, limit=100_000))
        await endless.close()
        await _on(sandbox)


async def served_answer_that_is_late_is_lost(provider: SandboxProvider) -> None:
    """An answer after the deadline is never taken for the answer to the next question."""
    async with sandbox_of(provider) as sandbox:
        served = await _served(sandbox, provider)
        await assert_raises(ChannelLost, served.ask(b"sleep 1", timeout_seconds=0.2))
        await assert_raises(ChannelLost, served.ask(b"next", timeout_seconds=SECONDS))
        await served.close()
        await _on(sandbox)


async def served_process_takes_its_children_along(provider: SandboxProvider) -> None:
    """`close` ends what it started too, whatever session that is in; so does the end of the sandbox."""
    token = secrets.token_hex(16)
    daemon = f"setsid sh -c 'trap : TERM HUP; while :; do sleep 1; done' {token} & exec cat"
    async with sandbox_of(provider) as sandbox:
        served = await sandbox.serve(["sh", "-c", daemon])
        assert await served.ask(b"on", timeout_seconds=SECONDS) == b"on"
        await served.close()
        await assert_gone(token)
        left = await sandbox.serve(["sh", "-c", daemon])
        assert await left.ask(b"on", timeout_seconds=SECONDS) == b"on"
    await assert_gone(token)
    await assert_raises(SandboxInfraError, left.ask(b"on", timeout_seconds=SECONDS))
    await assert_raises(SandboxInfraError, sandbox.serve(["cat"]))


async def sweep_kills_all_there_is(provider: SandboxProvider) -> None:
    """Everything of the candidate's dies, a served process too; the sandbox goes on."""
    token = secrets.token_hex(16)
    script = f"for i in 1 2 3; do setsid sh -c 'sleep 100; :' {token} & done; exec cat"
    async with sandbox_of(provider) as sandbox:
        assert await sandbox.sweep() == 0
        served = await sandbox.serve(["sh", "-c", script])
        assert await served.ask(b"on", timeout_seconds=SECONDS) == b"on"
        await sandbox.sweep()
        await assert_gone(token)
        await assert_raises(ChannelLost, served.ask(b"on", timeout_seconds=SECONDS))
        await served.close()
        assert await sandbox.sweep() == 0
        await _on(sandbox)
    await assert_raises(SandboxInfraError, sandbox.sweep())


@contextmanager
def tar_of(tree: Mapping[str, bytes]) -> Iterator[str]:
    """The path of a tar file that holds `tree`, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.tar"
        with tarfile.open(path, "w") as tar:
            for name, content in tree.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        yield str(path)


async def difference_is_the_same_patch_everywhere(provider: SandboxProvider) -> None:
    """Byte for byte what is computed here from the same trees; over a megabyte, and with names that are no text."""
    name, large = os.fsdecode(b"n\xff.txt"), bytes(range(256)) * 6000
    old = {"a.py": b"X = 1\n", "gone.py": b"1\n", "same.py": b"same\n", "data.bin": b"\0old"}
    new = {"a.py": b"X = 2\n", "same.py": b"same\n", "data.bin": large, name: b"new\r\n", "sub/new file": b""}
    hostile = {".gitattributes": b"* -text diff=evil filter=evil\n"}
    with tar_of(old) as base, tar_of({**new, **hostile}) as wanted:
        async with sandbox_of(provider, archive=base) as sandbox:
            unchanged = await sandbox.diff()
            assert (unchanged.patch, unchanged.changed, unchanged.dropped) == (b"", (), {}), unchanged
            await sandbox.put({**new, **hostile})
            assert (await sh(sandbox, "rm gone.py && mkdir __pycache__ && echo > __pycache__/a.pyc")).exit_code == 0
            told = await sandbox.diff()
            expected = difference(Path(wanted).read_bytes(), base)
            assert told == expected, (told.changed, told.dropped)
            assert len(told.patch) > 1_000_000, len(told.patch)
            assert b"-X = 1\n+X = 2\n" in told.patch
            only = await sandbox.diff(allow=("*.py",))
            assert only.changed == ("a.py", "gone.py"), only.changed
            assert only.dropped["data.bin"] == "not allowed", only.dropped
            other = await sandbox.diff(wanted, max_bytes=1000)
            assert (other.patch, other.changed) == (b"", ()), other.changed
    async with sandbox_of(provider) as sandbox:
        await sandbox.put({"one": b"1\n"})
        assert (await sandbox.diff()).changed == ("one",)
    await assert_raises(SandboxInfraError, sandbox.diff())


async def difference_drops_what_is_no_file(provider: SandboxProvider) -> None:
    """Links, pipes and git's own names are not in the patch, and the reason is told; their content is never read."""
    script = "ln -s /etc/passwd link; mkfifo pipe; mkdir .git folder; echo evil > .git/config; ln -s folder linked"
    async with sandbox_of(provider) as sandbox:
        await sandbox.put({"big": b"b" * 5000, "small": b"s"})
        assert (await sh(sandbox, f"{script}; chmod 0 . 2>/dev/null; true")).exit_code == 0
        told = await sandbox.diff(max_bytes=1000)
        assert told.changed == ("small",), told.changed
        assert set(told.dropped) == {"link", "linked", "pipe", ".git/config", "big"}, told.dropped
        assert b"root:" not in told.patch


async def alive_until_closed(provider: SandboxProvider) -> None:
    """The backend knows."""
    async with sandbox_of(provider) as sandbox:
        assert await sandbox.alive()
        await sh(sandbox, "exit 1")
        assert await sandbox.alive()
    assert not await sandbox.alive()


async def acquired_ones_are_clean_and_distinct(provider: SandboxProvider) -> None:
    """Whether it came out of the pool or not, each is handed out once and holds the archive only."""
    with tar_of({"a.py": b"X = 1\n"}) as archive:
        spec = SandboxSpec(name="python", archive=archive)
        seen: list[Sandbox] = []
        try:
            for _ in range(4):
                sandbox = await provider.acquire(spec)
                seen.append(sandbox)
                result = await sh(sandbox, 'ls; ls "${TMPDIR:-/tmp}"; cat a.py')
                assert result.stdout == "a.py\nX = 1\n", result
                await sandbox.put({"mine": b"1"})
                await sh(sandbox, 'echo 1 > "${TMPDIR:-/tmp}/mine"; echo >> a.py')
            seen += await asyncio.gather(*(provider.acquire(spec) for _ in range(3)))
            assert len({sandbox.id for sandbox in seen}) == 7, [sandbox.id for sandbox in seen]
        finally:
            await asyncio.gather(*(sandbox.close() for sandbox in seen))


async def listed_until_closed(provider: SandboxProvider) -> None:
    """It is listed with its labels and its owner, who lives; the reaper leaves it alone."""
    run = secrets.token_hex(8)
    async with sandbox_of(provider, labels={"run": run, "role": "solver"}) as sandbox:
        (left,) = [left for left in await provider.listed() if left.labels.get("run") == run]
        assert (left.id, left.backend, left.dead) == (sandbox.id, provider.name, False), left
        assert left.owner == str(Owner.here()), left
        assert left.labels["role"] == "solver", left
        assert 0 <= left.age_seconds < 600, left
        assert sandbox.id not in await provider.reap()
        assert sandbox.id not in await provider.reap(older_than_seconds=0.0)
        await _on(sandbox)
    assert [left for left in await provider.listed() if left.id == sandbox.id] == []


async def bulky_answers_in_both_ways(provider: SandboxProvider) -> None:
    """Megabytes on standard input to a command that prints megabytes: neither waits for the other for ever."""
    async with sandbox_of(provider) as sandbox:
        payload = b"z" * 3_000_000
        result = await run_python(
            sandbox, provider, "import sys; sys.stdout.buffer.writelines(sys.stdin.buffer)", stdin=payload
        )
        assert len(result.stdout) - result.stdout.count("\n") > 1 << 19, len(result.stdout)
        assert result.stdout_dropped == 3_000_000 - (1 << 20), result.stdout_dropped


LIFECYCLE: tuple[Check, ...] = (
    served_process_answers,
    served_process_that_ends_is_lost,
    served_answer_that_is_too_long_is_lost,
    served_answer_that_is_late_is_lost,
    served_process_takes_its_children_along,
    sweep_kills_all_there_is,
    difference_is_the_same_patch_everywhere,
    difference_drops_what_is_no_file,
    alive_until_closed,
    acquired_ones_are_clean_and_distinct,
    listed_until_closed,
    bulky_answers_in_both_ways,
)
