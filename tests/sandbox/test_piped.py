from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from selfplay.sandbox import ChannelLost, SandboxInfraError
from selfplay.sandbox.piped import Piped
from selfplay.sandbox.process import start_process


def run(code: str, check: Callable[[Piped, list[Piped]], Awaitable[None]], *, fault: str = "") -> None:
    """`check` against a Python process that runs `code`."""

    async def main() -> None:
        pipe = subprocess.PIPE
        process = start_process([sys.executable, "-I", "-u", "-c", code], stdin=pipe, stderr=pipe, env={})
        closed: list[Piped] = []
        served = Piped(process, fault=lambda: fault, ended=closed.append)
        try:
            await check(served, closed)
        finally:
            await served.close()
            assert process.stderr is not None
            process.stderr.close()
        assert process.returncode is not None
        assert closed == [served]

    asyncio.run(main())


ECHO = "import sys\nfor line in sys.stdin: sys.stdout.write(line)"


def test_questions_take_turns() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        asked = [b"%d" % n for n in range(20)]
        assert await asyncio.gather(*(served.ask(line, timeout_seconds=20.0) for line in asked)) == asked

    run(ECHO, check)


def test_line_end_in_a_question_is_our_mistake() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        with pytest.raises(ValueError):
            await served.ask(b"a\nb", timeout_seconds=20.0)

    run(ECHO, check)


def test_question_that_was_given_up_leaves_no_answer_for_the_next() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        asked = asyncio.create_task(served.ask(b"one", timeout_seconds=20.0))
        await asyncio.sleep(0.1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        with pytest.raises(ChannelLost, match="given up"):
            await served.ask(b"two", timeout_seconds=20.0)

    run("import sys, time\nfor line in sys.stdin: time.sleep(0.5); sys.stdout.write(line)", check)


def test_closed_output_of_a_process_that_goes_on_is_lost() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        with pytest.raises(ChannelLost, match="ended"):
            await served.ask(b"one", timeout_seconds=20.0)

    run("import os, time; os.close(1); time.sleep(60)", check)


def test_end_that_the_sandbox_brought_about_is_no_candidates_fault() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        with pytest.raises(SandboxInfraError, match="the holder died"):
            await served.ask(b"one", timeout_seconds=20.0)

    run("raise SystemExit(3)", check, fault="the holder died")


def test_one_that_reads_nothing_is_late() -> None:
    async def check(served: Piped, closed: list[Piped]) -> None:
        with pytest.raises(ChannelLost, match="no answer within"):
            await served.ask(b"x" * 1_000_000, timeout_seconds=0.3)
        assert closed == []

    run("import time; time.sleep(60)", check)


def test_close_while_it_is_asked() -> None:
    async def check(served: Piped, _: list[Piped]) -> None:
        asked = asyncio.create_task(served.ask(b"one", timeout_seconds=20.0))
        await asyncio.sleep(0.1)
        await served.close()
        with pytest.raises(SandboxInfraError):
            await asked

    run("import time; time.sleep(60)", check)
