"""The toolbox of a harness: its sandbox is closed whatever happens; what a harness plays is in `tests/doors`."""

from __future__ import annotations

import asyncio

import pytest

from selfplay.sandbox import SandboxSpec
from selfplay.tools import Call
from selfplay.tools.harness import START, HarnessBench
from selfplay.tools.workbench import Changes
from tests.tools.conftest import BACKENDS, make, needed

ASKS = "import os, urllib.request; urllib.request.urlopen(os.environ['OPENAI_BASE_URL'] + '/models')"
"""A harness that waits for an answer."""


@pytest.mark.parametrize("name", BACKENDS)
def test_it_is_closed_also_where_closing_is_cancelled(name: str) -> None:
    needed(name)

    async def main() -> None:
        provider = make(name)
        bench = HarnessBench(provider, SandboxSpec(name="python"), handover=Changes())
        await bench.call(Call(name=START, arguments={"argv": [bench.python, "-c", ASKS]}))
        sandbox = await bench._place.sandbox()
        closing = asyncio.create_task(bench.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not await sandbox.alive()
        await provider.aclose()

    asyncio.run(main())
