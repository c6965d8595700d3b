"""Workbenches on real backends; `bench` runs an async check with one, and closes everything."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from selfplay.sandbox import SandboxSpec
from selfplay.tools import Allowance, Answer, Call
from selfplay.tools.workbench import Changes, Handover, Workbench
from tests.backends import make, needed

BACKENDS = [pytest.param("bubblewrap", marks=pytest.mark.bubblewrap), "local"]
ALL = [*BACKENDS, pytest.param("docker", marks=pytest.mark.docker)]
Say = Callable[..., Awaitable[Answer]]
"""`say("bash", command="ls")`"""
Bench = Callable[..., None]


def limited(tools: Workbench, name: str, seconds: float) -> None:
    """From now on a call of that tool may take so long: only what never ends is to meet it on a busy machine."""
    tool = tools._tools[name]
    tool._allowance = dataclasses.replace(tool._allowance, command_seconds=seconds)  # type: ignore[attr-defined]


@pytest.fixture
def bench() -> Bench:
    """`bench("local", check)`: run `check(say, workbench)` with fresh tools, and close them."""

    def run(
        name: str,
        check: Callable[[Say, Workbench], Awaitable[None]],
        *,
        allowance: Allowance | None = None,
        handover: Handover | None = None,
        **spec: object,
    ) -> None:
        needed(name)

        async def main() -> None:
            provider = make(name)
            made = SandboxSpec(name="python", **spec)  # type: ignore[arg-type]
            tools = Workbench(provider, made, allowance=allowance or Allowance(), handover=handover or Changes())

            async def say(tool: str, /, **arguments: object) -> Answer:
                return await tools.call(Call(name=tool, arguments=arguments))

            try:
                await check(say, tools)
            finally:
                await tools.aclose()
                await provider.aclose()

        asyncio.run(main())

    return run
