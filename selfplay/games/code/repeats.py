"""Repeats of one candidate: one sandbox, in which a server forks a process with pytest loaded for each run.

What is covered: the engine's side of `inside.py serve`. A run is the same record with the same key as one in a sandbox
of its own, shares the verifier's memory of results, and takes its turn among the verifier's runs. A server that ends or
does not answer is the candidate's doing, and the run failed; the next run gets a new sandbox and a new server.

What is not covered: repeats that know nothing of each other. They share the work tree and /tmp, so files that a test
leaves are there in the next repeat, and the layout of memory; a test that depends on those does the same in every
repeat, and differs in a new sandbox. The order of sets and dicts of strings follows `hash_seed`, fixed for a server.
An open `Repeats` holds its sandbox between runs: close it soon.

Example:
    >>> async with repeats(verifier, change=change) as server:  # doctest: +SKIP
    ...     runs = [await server.run(tests, budget=budget, again=i) for i in range(3)]
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from selfplay.games.code.verify import MAX_REPORT, Budget, Candidate, Executed, Run, Verifier, variables
from selfplay.sandbox import ChannelLost, SandboxInfraError, Served
from selfplay.types import Result

START_SECONDS = 60.0
"""How long Python and pytest may take to load; no code of the candidate runs then."""
SLACK_SECONDS = 20.0
"""How much later than the run's own deadline the server may answer: it kills what the run started before it does."""
_LINE = 2 * MAX_REPORT


@contextlib.asynccontextmanager
async def repeats(verifier: Verifier, *, change: Candidate | None = None, hash_seed: int = 0) -> AsyncIterator[Repeats]:
    """Repeats of the clean tree with `change` made; nothing is started before the first run."""
    made = Repeats(verifier, change=change, hash_seed=hash_seed)
    try:
        yield made
    finally:
        await made.close()


class Repeats:
    """One candidate and its server; runs wait for each other."""

    def __init__(self, verifier: Verifier, *, change: Candidate | None, hash_seed: int) -> None:
        self._verifier = verifier
        self._change = change
        self._hash_seed = hash_seed
        self._turn = asyncio.Lock()
        self._open: tuple[Served, contextlib.AsyncExitStack] | None = None

    async def run(self, tests: Sequence[str], *, budget: Budget, again: int = 0, first: bool = False) -> Run:
        """As `Verifier.run`: the same record, whichever way it was made.

        Raises:
            SandboxInfraError: the machine failed; nothing was decided.
        """
        return await self._verifier.run(
            tests,
            budget=budget,
            change=self._change,
            again=again,
            first=first,
            hash_seed=self._hash_seed,
            by=self._execute,
        )

    async def close(self) -> None:
        """End the server, then its sandbox; idempotent."""
        if self._open is not None:
            stack, self._open = self._open[1], None
            await stack.aclose()

    async def _execute(self, request: Mapping[str, object], *, budget: Budget) -> Executed:
        whole, _ = self._verifier.whole(request, budget=budget)
        line = json.dumps({**whole, "seconds": budget.seconds}).encode()
        async with self._turn:
            served = await self._served()
            started = time.monotonic()
            try:
                answer = await served.ask(line, timeout_seconds=budget.seconds + SLACK_SECONDS, limit=_LINE)
                return _executed(answer)
            except (ChannelLost, ValueError) as error:
                await self.close()
                return _lost(error, seconds=time.monotonic() - started, budget=budget)
            except BaseException:
                # note: an answer may still be on its way, which the next question must not get.
                await self.close()
                raise

    async def _served(self) -> Served:
        """The server, started and waited for where there is none."""
        if self._open is None:
            async with contextlib.AsyncExitStack() as stack:
                sandbox = await stack.enter_async_context(self._verifier.sandbox(change=self._change))
                served = await sandbox.serve(self._verifier.argv("serve"), env=variables(self._hash_seed))
                stack.push_async_callback(served.close)
                try:
                    await served.ask(b"{}", timeout_seconds=START_SECONDS)
                except ChannelLost as error:
                    raise SandboxInfraError(f"the test server did not start: {error.message}") from error
                self._open = served, stack.pop_all()
        return self._open[0]


def _executed(answer: bytes) -> Executed:
    """What the server told of a run.

    Raises:
        ValueError: it is no answer.
    """
    try:
        told = json.loads(answer)
        code, report = told["exit_code"], told["report"]
        result = Result(
            exit_code=None if code is None else int(code),
            stdout="",
            stderr="",
            seconds=float(told["seconds"]),
            timed_out=bool(told["timed_out"]),
            oom_killed=bool(told["oom_killed"]),
        )
        found = None if report is None else base64.b64decode(report)
        return Executed(result=result, report=found, hung=bool(told["hung"]))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not an answer: {error!r}") from error


def _lost(error: ChannelLost | ValueError, *, seconds: float, budget: Budget) -> Executed:
    """A run without an answer: too late, or the candidate ended the server."""
    late = seconds >= budget.seconds
    result = Result(exit_code=None, stdout="", stderr="", seconds=seconds, timed_out=late)
    said = "the candidate ended or silenced the process that runs its tests"
    if isinstance(error, ValueError):
        said = "the process that runs the candidate's tests gave an answer that cannot be read"
    return Executed(result=result, report=None, lost=said)
