"""SIGKILL while real tests run in real sandboxes, and inside the warm-up: the code game with replies from a table.

The kill hits the engine alone; its sandboxes are gone when the run is done, whoever ends them.

Not here: real weights (`python tests/crash/long.py --code 100`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import points
import pytest
from compared import differences
from harness import Chain, Crash, Played, Setup, write_package

from tests.backends import needed

pytestmark = pytest.mark.slow


def killed_at(where: Sequence[Crash], *sets: str, sandbox: str, folder: Path) -> list[str]:
    """How a chain through `where` differs from the run without interruption."""
    setup = Setup.code(write_package(folder / "tiny-1.0"), *sets, sandbox=sandbox, steps=2)
    whole = Played.by(setup, folder, cache=folder / "cache")
    chain = Chain(setup=setup, runs=folder, name="chain", cache=folder / "cache")
    for crash in where:
        chain.crash(crash)
    chain.finish()
    return differences(chain, whole.folder)


@pytest.mark.bubblewrap
def test_killed_while_bubblewrap_runs_tests(tmp_path: Path) -> None:
    needed("bubblewrap")
    assert killed_at(points.VERIFYING, "warmup.steps=0", sandbox="bubblewrap", folder=tmp_path) == []


@pytest.mark.docker
def test_killed_while_docker_runs_tests(tmp_path: Path) -> None:
    needed("docker")
    assert killed_at(points.VERIFYING[2:4], "warmup.steps=0", sandbox="docker", folder=tmp_path) == []


def test_killed_inside_the_warm_up(tmp_path: Path) -> None:
    assert killed_at(points.WARMING, sandbox="local", folder=tmp_path) == []


def test_killed_inside_a_warm_up_that_is_taken_from_the_cache(tmp_path: Path) -> None:
    sets = ("warmup.cache=true", "warmup.check_every=0")
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), *sets, sandbox="local", steps=1)
    cache = tmp_path / "cache"
    Played.by(setup, tmp_path, name="maker", cache=cache)
    whole = Played.by(setup, tmp_path, cache=cache)
    chain = Chain(setup=setup, runs=tmp_path, name="chain", cache=cache)
    for crash in (
        Crash(at="selfplay.warmup:_adopt"),
        Crash(at="selfplay.ledger:Ledger.append_save"),
        Crash(at="selfplay.warmup:_adopt", when="after"),
    ):
        chain.crash(crash)
    chain.finish()
    assert differences(chain, whole.folder) == []
