"""SIGKILL at every stage boundary, inside every commit and save, and at random moments: the toy game, about 45 kills.

Here: the short form. The long one is `python tests/crash/long.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import points
import pytest
from compared import differences
from harness import Chain, Crash, Played, Setup, kill_at_random

pytestmark = pytest.mark.slow


def at_points(setup: Setup, runs: Path, where: Iterable[Crash]) -> list[str]:
    """One chain through `where`; how it differs from the run without interruption."""
    whole = Played.by(setup, runs)
    chain = Chain(setup=setup, runs=runs, name="chain")
    for crash in where:
        chain.crash(crash)
    chain.finish()
    return differences(chain, whole.folder)


def at_random(setup: Setup, runs: Path, *, seed: int, most: int) -> list[str]:
    """One chain through random moments."""
    whole = Played.by(setup, runs)
    chain = Chain(setup=setup, runs=runs, name="chain")
    kill_at_random(chain, whole, rng=random.Random(seed), window=whole.seconds / 4, most=most)
    return differences(chain, whole.folder)


def test_a_killed_run_equals_one_that_was_not(tmp_path: Path) -> None:
    plain = Setup.toy(steps=16)
    # note: a reference for the divergence, one save kept: what a resume may stumble over.
    rich = Setup.toy("learner.kl=0.02", "run.keep_saves=1", steps=30)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(at_points, plain, tmp_path / "inside", (*points.COMMITS, *points.STAGES)),
            pool.submit(at_points, rich, tmp_path / "around", (*points.MAKING, *points.SAVES, *points.RETURNS)),
            pool.submit(at_random, plain, tmp_path / "random", seed=4, most=5),
        ]
        assert [job.result() for job in jobs] == [[], [], []]
