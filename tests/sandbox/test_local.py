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
