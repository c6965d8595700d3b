"""What became of a container whose channel was lost: the engine is asked, never the candidate.

The container runs, the same engine still knows the lost program, and says that it ended: the candidate did it. An
engine that was started anew, lost the stream or does not answer, and a container that was stopped from outside, are
the machine's. Afterwards all that runs as the candidate is killed by a program of its own.

Not covered: what follows from it for a command (`container`), for a served process (`served`).
"""

from __future__ import annotations

import asyncio
import re
import time

from selfplay.sandbox import SandboxInfraError
from selfplay.sandbox.channel import CANDIDATE, SWEEP
from selfplay.sandbox.engine import Engine, exec_ended
from selfplay.types import record

SETTLE_SECONDS = 5.0
"""How long the engine may take to notice that a command ended."""
_SWEEPS = 3
_FULL = 0.95


@record
class Finding:
    """What the engine said; the candidate is to blame."""

    oom_kills: int
    """How many processes of the container the kernel has ended for memory, in all."""
    spent: bool
    """Its processes cannot be ended, or leave no memory to start one: nothing can be run any more."""
    starved: bool
    """The container itself, or all that was to run in it, ended for want of memory."""


class Inquest:
    """Asks after one container."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container

    async def of(self, exec_id: str, *, ended: bool) -> Finding:
        """Who lost the channel of `exec_id`; `ended` where its stream came to an end.

        Raises:
            SandboxInfraError: the engine or the container failed by themselves.
        """
        if await self.starved():
            return Finding(oom_kills=0, spent=True, starved=True)
        if ended:
            await self.settled(exec_id)
        found = await self._swept()
        # note: asked again, because what stops a container ends its commands first, and the engine notes it late.
        if await self.starved():
            return Finding(oom_kills=found.oom_kills, spent=True, starved=True)
        return found

    async def starved(self) -> bool:
        """Has the container ended for want of memory, which is the candidate's doing? False where it runs.

        Raises:
            SandboxInfraError: it ended otherwise, or is not there, or the engine does not answer.
        """
        state = await self._engine.call(
            "inspect", lambda: self._engine.api.inspect_container(self._container)["State"], tries=2
        )
        if state["Running"]:
            return False
        if state.get("OOMKilled"):
            return True
        raise SandboxInfraError(
            f"the container {self._container} was stopped from outside, or its time to live is over"
        )

    async def settled(self, exec_id: str) -> None:
        """The engine says that the program ended.

        Raises:
            SandboxInfraError: it says otherwise, or knows nothing of it: it was started anew, or lost the stream.
        """
        until = time.monotonic() + SETTLE_SECONDS
        while not await self._engine.call("exec", lambda: exec_ended(self._engine.api, exec_id), tries=2):
            if time.monotonic() > until:
                raise SandboxInfraError("the engine's stream ended, but the command did not")
            await asyncio.sleep(0.02)

    async def _swept(self) -> Finding:
        kills = 0
        for _ in range(_SWEEPS):
            # The candidate may kill the sweeper, if it is quicker.
            try:
                said, code = await self._engine.call("sweep", self._sweep)
            except SandboxInfraError:
                if await self.starved() or await self.memory_is_full():
                    return Finding(oom_kills=kills, spent=True, starved=True)
                raise
            kills = max([kills, *map(int, re.findall(rb"^oom_kill (\d+)$", said, re.MULTILINE))])
            if code == 0:
                return Finding(oom_kills=kills, spent=False, starved=False)
        return Finding(oom_kills=kills, spent=True, starved=False)

    def _sweep(self) -> tuple[bytes, int]:
        """Kill all of the candidate's, without an agent: (what was said, exit code). Blocking."""
        api = self._engine.api
        number = api.exec_create(self._container, list(SWEEP), user=CANDIDATE)["Id"]
        said = api.exec_start(number)
        until = time.monotonic() + SETTLE_SECONDS
        while not exec_ended(api, number):
            if time.monotonic() > until:
                raise TimeoutError("the sweep's stream ended, but the sweep did not")
            time.sleep(0.005)
        return said, api.exec_inspect(number)["ExitCode"]

    async def memory_is_full(self) -> bool:
        """Does what runs or lies in the container take nearly all of its memory?

        Raises:
            SandboxInfraError: the engine does not answer.
        """
        stats = await self._engine.call(
            "stats", lambda: self._engine.api.stats(self._container, stream=False, one_shot=True)
        )
        memory = stats.get("memory_stats", {})
        return bool(memory.get("limit")) and memory.get("usage", 0) > _FULL * memory["limit"]
