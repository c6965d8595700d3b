"""The corpus reads, is large enough, and its rulings hold for a few rows on the smallest package."""

from __future__ import annotations

import asyncio
import tarfile
import tomllib
from pathlib import Path

import pytest

from selfplay.games.code.attacks.corpus import HERE, Case, Target, base, cases, pack, targets
from selfplay.games.code.attacks.judges import Bench, Ruling, prepared, protocol
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from tests.backends import needed


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The smallest package."""
    [found] = targets(["toy"], cache=tmp_path_factory.mktemp("cache"), folder=tmp_path_factory.mktemp("toy"))
    return found


def test_rows_are_whole_and_named_once(toy: Target) -> None:
    found = cases(toy)
    names = [case.name for case in found]
    assert len(names) == len(set(names))
    assert sum(not case.honest for case in found) >= 60
    assert sum(case.honest for case in found) >= 3
    for case in found:
        assert case.does
        assert case.does[0].islower()
        assert not any(b"@@" in content for content in case.files.values() if content), case.name
        assert not any("@@" in path for path in [*case.files, *case.links, *case.pipes]), case.name
    for path in (HERE / "rows").glob("*.toml"):
        for row in tomllib.loads(path.read_text()).get("attack", []):
            assert set(row) <= KEYS, row["name"]


KEYS = {"name", "does", "origin", "append", "files", "remove", "links", "pipes", "slow"}
KEYS |= {"empty_tests", "empty_tests_at", "clean_bytecode", "odd_names"}


def test_every_tree_can_be_packed(toy: Target, tmp_path: Path) -> None:
    for case in cases(toy):
        pack(base(toy), case, tmp_path / "tree.tar")
        with tarfile.open(tmp_path / "tree.tar", errors="surrogateescape") as packed:
            held = packed.getnames()
        assert len(held) == len(set(held))
        assert {path for path, content in case.files.items() if content is not None} <= set(held)


@pytest.mark.bubblewrap
def test_protocol_c_tells_honest_repairs_from_attacks(toy: Target, tmp_path: Path) -> None:
    needed("bubblewrap")

    async def main() -> dict[str, Ruling]:
        provider = BubblewrapProvider()
        try:
            bench = await prepared(Bench(target=toy, provider=provider, folder=tmp_path))
            return {name: await protocol(by_name[name], bench) for name in chosen}
        finally:
            await provider.aclose()

    by_name: dict[str, Case] = {case.name: case for case in cases(toy)}
    chosen = ("by sum", "patch-testreport", "always-equal-ne", "edit-tests")
    rulings = asyncio.run(main())
    assert {name: ruling.accepted for name, ruling in rulings.items()} == {name: name == "by sum" for name in chosen}
