"""Every backend against the one contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay.sandbox.conformance import CONTRACT
from selfplay.sandbox.isolation import ISOLATION
from selfplay.sandbox.probes import Check

ALL = CONTRACT + ISOLATION


@pytest.mark.bubblewrap
@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_bubblewrap_keeps_the_contract(check: Check, with_provider: Callable[..., None]) -> None:
    with_provider("bubblewrap", check)


@pytest.mark.docker
@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_docker_keeps_the_contract(check: Check, with_provider: Callable[..., None]) -> None:
    with_provider("docker", check)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_local_keeps_the_contract(check: Check, with_provider: Callable[..., None]) -> None:
    with_provider("local", check)
