"""Equal runs of a test say equal things: what Python derives from addresses is the same in every sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from selfplay.sandbox import SandboxProvider
from selfplay.sandbox.probes import SECONDS, sandbox_of

OF_NONE = "print(list({(None, n) for n in range(20)}), list({int, str, float, dict, set}))"
OF_FUNCTIONS = OF_NONE + "; print([f() for f in {eval(f'lambda: {n}') for n in range(20)}])"
REFUSED = subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode != 0
kernel_may = pytest.mark.skipif(REFUSED, reason="the kernel refuses a fixed layout of memory here")


async def _same(provider: SandboxProvider, text: str) -> None:
    told = set()
    for _ in range(4):
        async with sandbox_of(provider) as sandbox:
            argv = [provider.python, "-c", text]
            result = await sandbox.exec(argv, timeout_seconds=SECONDS, env={"PYTHONHASHSEED": "0"})
            assert result.exit_code == 0, result
            told.add(result.stdout)
    assert len(told) == 1, told


async def sets_are_in_one_order(provider: SandboxProvider) -> None:
    await _same(provider, OF_FUNCTIONS)


async def sets_of_constants_are_in_one_order(provider: SandboxProvider) -> None:
    await _same(provider, OF_NONE)


@kernel_may
@pytest.mark.bubblewrap
def test_in_bubblewrap(with_provider: Callable[..., None]) -> None:
    with_provider("bubblewrap", sets_are_in_one_order)


@kernel_may
def test_on_the_host(with_provider: Callable[..., None]) -> None:
    with_provider("local", sets_are_in_one_order)


@pytest.mark.docker
def test_in_docker_what_its_debian_python_places_itself(with_provider: Callable[..., None]) -> None:
    with_provider("docker", sets_of_constants_are_in_one_order)
