from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.process import Cut, Owner, limit_argv, open_archive, run_process


@given(chunks=st.lists(st.binary(max_size=50), max_size=20), limit=st.integers(min_value=0, max_value=100))
def test_cut_keeps_both_ends_and_counts_the_rest(chunks: list[bytes], limit: int) -> None:
    cut, whole = Cut(limit), b"".join(chunks)
    for chunk in chunks:
        cut.add(chunk)
    head, tail = (limit + 1) // 2, limit // 2
    if len(whole) <= limit:
        assert (cut.raw(), cut.dropped) == (whole, 0)
        assert cut.text() == whole.decode(errors="replace")
    else:
        assert cut.raw() == whole[:head] + whole[len(whole) - tail :]
        assert cut.dropped == len(whole) - limit
        assert f"[... {cut.dropped} bytes cut ...]" in cut.text()


def test_result_of_a_process() -> None:
    ended = asyncio.run(run_process(["sh", "-c", "cat; exit 4"], timeout_seconds=10.0, stdin=b"in"))
    result = ended.result()
    assert (result.exit_code, result.stdout, result.timed_out) == (4, "in", False)


def test_deadline_ends_the_group_and_leaves_no_exit_code() -> None:
    start = time.monotonic()
    ended = asyncio.run(run_process(["sh", "-c", "echo begun; sleep 60 & sleep 60"], timeout_seconds=0.3))
    assert time.monotonic() - start < 5.0
    result = ended.result()
    assert (result.exit_code, result.timed_out, result.stdout) == (None, True, "begun\n")


def test_child_that_holds_the_output_does_not_hold_the_result() -> None:
    start = time.monotonic()
    ended = asyncio.run(run_process(["sh", "-c", "setsid sleep 5 & echo done"], timeout_seconds=30.0))
    assert time.monotonic() - start < 4.0
    assert (ended.exit_code, ended.stdout.text()) == (0, "done\n")


def test_cancellation_ends_the_process() -> None:
    async def main() -> int:
        pids: list[int] = []
        begun = asyncio.Event()

        def started(process: subprocess.Popen[bytes]) -> None:
            pids.append(process.pid)
            begun.set()

        task = asyncio.create_task(run_process(["sleep", "60"], timeout_seconds=60.0, started=started))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids[0]

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(main()), 0)


def test_a_hundred_megabytes_do_not_stay_in_memory() -> None:
    ended = asyncio.run(run_process(["head", "-c", "100000000", "/dev/zero"], timeout_seconds=30.0, output_limit=1000))
    assert ended.stdout.dropped == 100_000_000 - 1000
    assert len(ended.stdout.raw()) == 1000


def test_many_processes_at_once() -> None:
    async def main() -> list[str]:
        ended = await asyncio.gather(*(run_process(["echo", str(n)], timeout_seconds=20.0) for n in range(30)))
        return [one.stdout.text().strip() for one in ended]

    assert asyncio.run(main()) == [str(n) for n in range(30)]


def test_missing_program_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(run_process(["/no/such/program"], timeout_seconds=1.0))


def test_owner_survives_a_round_trip_and_knows_the_dead() -> None:
    here = Owner.here()
    assert Owner.parse(str(here)) == here
    assert not here.dead()
    assert Owner(host=here.host, pid=here.pid, started=here.started + 1).dead(), "a reused process number"
    assert Owner(host=here.host, pid=2**22 + 5, started=1).dead()
    assert not Owner(host="elsewhere.invalid", pid=2**22 + 5, started=1).dead(), "another host's is never called dead"
    for text in ("", "a", "a:b:c", "host:1", "host:1:x"):
        assert Owner.parse(text) is None


def test_limits_are_the_specs() -> None:
    argv = limit_argv(SandboxSpec(name="python", memory_mb=64, pids=9, file_mb=2), timeout_seconds=3.0, processes=True)
    assert {"--data=67108864", "--fsize=2097152", "--nproc=9", "--cpu=8", "--core=0"} <= set(argv)
    assert not any(word.startswith("--nproc") for word in limit_argv(
        SandboxSpec(name="python"), timeout_seconds=3.0, processes=False
    ))  # fmt: skip


def test_archive_that_cannot_be_read() -> None:
    with pytest.raises(SandboxInfraError, match="cannot read the archive"):
        open_archive(f"{sys.prefix}/no-such.tar")
