from __future__ import annotations

import asyncio
from pathlib import Path

from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.process import Owner


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


def test_it_says_what_it_is() -> None:
    assert not LocalProvider.capabilities.isolated
    assert not LocalProvider.capabilities.network_none
