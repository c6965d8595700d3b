from __future__ import annotations

import time

import pytest

from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.hardening import EXPIRES, OWNER, labels_of, left_of
from selfplay.sandbox.process import Owner

NOW = 1_000_000.0
DEAD = str(Owner(host=Owner.here().host, pid=Owner.here().pid, started=1))


def container(**labels: str) -> dict[str, object]:
    return {"Id": "1", "Names": ["/selfplay-1"], "State": "created", "Created": NOW - 60, "Labels": labels}


@pytest.mark.parametrize(
    ("owner", "expires", "dead"),
    [
        (str(Owner.here()), NOW + 1, False),
        (str(Owner.here()), NOW - 1, False),
        (DEAD, NOW + 1, True),
        ("elsewhere.invalid:1:1", NOW + 1, False),
        ("elsewhere.invalid:1:1", NOW - 1, True),
        ("nonsense", NOW + 1, False),
    ],
    ids=["living", "living, clock jumped", "dead", "elsewhere", "elsewhere, late", "unreadable"],
)
def test_whose_containers_are_dead(owner: str, expires: float, dead: bool) -> None:
    left = left_of(container(**{OWNER: owner, EXPIRES: f"{expires:.0f}"}), backend="docker", now=NOW)
    assert left.dead is dead
    assert (left.id, left.backend, left.owner, left.state) == ("selfplay-1", "docker", owner, "created")
    assert left.age_seconds == 60.0


def test_labels_come_back() -> None:
    spec = SandboxSpec(name="python", labels={"run": "r1"})
    left = left_of(container(**labels_of(spec)), backend="docker", now=time.time())
    assert dict(left.labels) == {"run": "r1"}
    assert left.owner == str(Owner.here())
