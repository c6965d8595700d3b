from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.process import Owner

NOBODY = 65534
UNPRIVILEGED = """
import asyncio, encodings.idna, json, os, sys
from pathlib import Path
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.process import Owner

folder, environment, found = Path(sys.argv[1]), tool_environment(), {}
if os.geteuid() == 0:
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))

def there():
    return sorted(path.name for path in folder.iterdir())

async def made(provider):
    sandbox = await provider.create(SandboxSpec(name="python"))
    await sandbox.exec(["sh", "-c", sys.argv[2]], timeout_seconds=30)
    return sandbox.id, sandbox

async def main():
    provider = LocalProvider(folder=folder, environment=environment)
    _, sandbox = await made(provider)
    await sandbox.close()
    found["after close"] = there()
    name, _ = await made(provider)
    dead = Owner(host=Owner.here().host, pid=os.getpid(), started=1)
    (folder / name / "owner").write_text(str(dead))
    folder.chmod(0o500)
    found["reaped from what stays"] = await provider.reap()
    found["still listed"] = [left.id for left in await provider.listed()] == [name]
    folder.chmod(0o700)
    found["reaped"] = await provider.reap() == (name,)
    found["after reap"] = there()
    print(json.dumps(found))

asyncio.run(main())
"""
"""What becomes of a candidate's folder where the engine is not root, from whom nobody can shut a folder."""


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that an engine without root can write into; pytest's own are root's, where root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="selfplay-test-") as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def unprivileged(folder: Path, command: str) -> dict[str, Any]:
    """What `UNPRIVILEGED` found, where the candidate ran `command`."""
    argv = [sys.executable, "-c", UNPRIVILEGED, str(folder), command, str(NOBODY)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_reaper_removes_dead_owners_only(tmp_path: Path) -> None:
    here = Owner.here()
    owners = {
        "sp-dead": str(Owner(host=here.host, pid=here.pid, started=here.started + 1)),
        "sp-live": str(here),
        "sp-elsewhere": str(Owner(host="elsewhere.invalid", pid=1, started=1)),
        "sp-garbage": "nonsense",
        "foreign": str(Owner(host=here.host, pid=here.pid, started=here.started + 1)),
    }
    for name, owner in owners.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner").write_text(owner, encoding="utf-8")
    provider = LocalProvider(folder=tmp_path)
    assert asyncio.run(provider.reap()) == ("sp-dead",)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["foreign", "sp-elsewhere", "sp-garbage", "sp-live"]


def test_clock_that_jumps_neither_reaps_the_living_nor_keeps_the_dead(tmp_path: Path) -> None:
    now = 1e9
    here = Owner.here()

    async def main() -> None:
        nonlocal now
        provider = LocalProvider(folder=tmp_path, clock=lambda: now)
        spec = SandboxSpec(name="python", ttl_seconds=60.0, labels={"run": "r"})
        living, dead, elsewhere = [await provider.create(spec) for _ in range(3)]
        owners = {dead.id: Owner(host=here.host, pid=here.pid, started=here.started + 1)}
        owners[elsewhere.id] = Owner(host="elsewhere.invalid", pid=1, started=1)
        for name, owner in owners.items():
            (tmp_path / name / "owner").write_text(str(owner), encoding="utf-8")
        for jump in (86400.0, -86400.0):
            now = 1e9 + jump
            seen = {left.id: left for left in await provider.listed()}
            assert not seen[living.id].dead, "its owner lives, whatever the clock says"
            assert seen[dead.id].dead, "its owner is dead, whatever the clock says"
            assert seen[elsewhere.id].dead == (jump > 0), "nobody can be asked, so its time decides"
            assert seen[living.id].age_seconds == max(0.0, jump)
            assert seen[living.id].labels == {"run": "r"}
        assert await provider.reap(older_than_seconds=10.0) == (), "set back, everything looks new"
        assert await provider.reap() == (dead.id,)
        now = 1e9 + 61.0
        assert await provider.reap(older_than_seconds=100.0) == ()
        assert await provider.reap(older_than_seconds=10.0) == (elsewhere.id,)
        assert await living.alive()
        await provider.aclose()

    asyncio.run(main())


def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    async def main() -> None:
        provider = LocalProvider(folder=tmp_path)
        await provider.create(SandboxSpec(name="python"))
        sandbox = await provider.create(SandboxSpec(name="python"))
        await sandbox.put({"a": b"1"})
        assert len(list(tmp_path.iterdir())) == 2
        await provider.aclose()

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p d/e && touch d/e/f && chmod 0 d/e d",
        "mkdir d && touch d/f && chmod 500 d",
        "mkdir d && touch d/f && chmod 600 d",
        "touch f && chmod 500 .",
        "i=0; while [ $i -lt 1200 ]; do mkdir d && cd d; i=$((i+1)); done; chmod 0 .",
    ],
)
def test_what_a_candidate_shut_is_removed_or_still_listed(anybodys: Path, command: str) -> None:
    assert unprivileged(anybodys, command) == {
        "after close": [],
        "reaped from what stays": [],
        "still listed": True,
        "reaped": True,
        "after reap": [],
    }


def test_a_link_of_the_candidates_is_removed_and_not_followed(anybodys: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="selfplay-kept-") as kept:
        if os.geteuid() == 0:
            os.chown(kept, NOBODY, NOBODY)
        Path(kept).chmod(0o755)
        found = unprivileged(anybodys, f"ln -s {kept} link && mkdir d && touch d/f && chmod 0 d")
        assert (found["after close"], found["after reap"]) == ([], [])
        assert Path(kept).stat().st_mode & 0o777 == 0o755


def test_it_says_what_it_is() -> None:
    assert not LocalProvider.capabilities.isolated
    assert not LocalProvider.capabilities.network_none
