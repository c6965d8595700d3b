"""Makes `harness` importable for the tests beside it, and plays the toy game once without interruption."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Chain, Played, Setup


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setup, Played]:
    """Six steps of the toy game, and the same run without interruption."""
    setup = Setup.toy(steps=6)
    return setup, Played.by(setup, tmp_path_factory.mktemp("toy"))


@pytest.fixture
def chain(toy: tuple[Setup, Played], tmp_path: Path) -> Chain:
    """The same configuration, not begun."""
    return Chain(setup=toy[0], runs=tmp_path, name="chain")
