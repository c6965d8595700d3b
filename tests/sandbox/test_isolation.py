"""The isolation checks find what they look for: a backend that isolates nothing fails those that may be tried on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay.sandbox import isolation
from selfplay.sandbox.conformance import checks_for
from selfplay.sandbox.isolation import ISOLATION
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.probes import Check


@pytest.mark.parametrize("check", [isolation.no_privilege_is_left, isolation.host_is_out_of_sight])
def test_no_isolation_is_noticed(check: Check, with_provider: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        with_provider("local", check)


def test_a_backend_that_isolates_nothing_is_not_asked_to() -> None:
    asked = checks_for(LocalProvider())
    assert set(asked).isdisjoint(ISOLATION)
    assert len(set(asked)) == len(asked)
