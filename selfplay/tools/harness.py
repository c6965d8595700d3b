"""A program of somebody else that plays in the sandbox of one episode, and asks for its replies over a relay.

What is covered: `HarnessBench`, a `Toolbox` that offers the policy nothing; its two calls are the engine's
(`doors.harness`): `start` begins the harness in the work tree, `answer` gives it the reply that it waits for. Each
comes back with the next request as JSON, or, once the harness has ended, with what it leaves, read out as `submit`
would (`Workbench`). The sandbox needs no network: requests go through the relay's standard streams.

What is not covered: what a request means and what is recorded (`doors.harness`), installing the harness (the recipe in
`sandboxes/`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

from selfplay.sandbox import SandboxProvider, SandboxSpec, Served
from selfplay.tools import Answer, Call, ToolSpec
from selfplay.tools.place import Place
from selfplay.tools.workbench import Handover

LONGEST = 64 << 20
"""Of a request, in bytes."""
START, ANSWER = "start", "answer"


class HarnessBench:
    """Implements `Toolbox` for one play of a harness."""

    specs: Sequence[ToolSpec] = ()

    def __init__(self, provider: SandboxProvider, spec: SandboxSpec, *, handover: Handover) -> None:
        self._place = Place(provider, spec)
        self._seconds = spec.ttl_seconds
        self._handover = handover
        self._served: Served | None = None
        self._turn = asyncio.Lock()

    @property
    def python(self) -> str:
        """The sandbox's interpreter, for the harness's command."""
        return self._place.python

    async def call(self, call: Call) -> Answer:
        """`start` with `argv`, or `answer` with `status`, `type` and `body`; the next request, or what is handed over.

        Raises:
            ChannelLost: the relay is gone or does not answer; it is the candidate's own.
            SandboxInfraError: the machine failed.
        """
        async with self._turn:
            began = time.monotonic()
            if call.name == START:
                sandbox = await self._place.sandbox()
                argv = [self.python, "-I", "-S", "-B", "-c", await asyncio.to_thread(_program)]
                self._served = await sandbox.serve(argv)
            assert self._served is not None, "a harness is started before it is answered"
            line = json.dumps(dict(call.arguments)).encode()
            raw = await self._served.ask(line, timeout_seconds=self._seconds, limit=LONGEST)
            said = _object(raw)
            if "ended" not in said:
                return Answer(text=raw.decode("utf-8", "replace"), seconds=time.monotonic() - began)
            await self._served.close()
            found = await self._handover(await self._place.sandbox(), "")
            product = {"nothing": found} if isinstance(found, str) else found
            code = said["ended"] if isinstance(said["ended"], int) else None
            return Answer(
                text=str(said.get("said", "")), exit_code=code, product=product, seconds=time.monotonic() - began
            )

    async def aclose(self) -> None:
        """Close the sandbox, and with it all that runs there; idempotent, shielded from cancellation."""
        try:
            if self._served is not None:
                await self._served.close()
        finally:
            # note: also where the wait for the harness's end was cancelled, or failed.
            await self._place.aclose()


def _program() -> str:
    return Path(__file__).with_name("relay.py").read_text(encoding="utf-8")


def _object(raw: bytes) -> dict[str, object]:
    """What the relay said; whoever speaks in its place may say anything."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
