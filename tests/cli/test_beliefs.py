from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli.beliefs import believed, lens_of
from selfplay.curriculum import presets
from selfplay.ledger import Ledger


@pytest.mark.parametrize(
    ("config", "window", "half_life", "target"),
    [
        ({"curriculum.choose": "frontier"}, 64, 30.0, 0.5),
        ({"curriculum.choose": "frontier", "curriculum.options": {"window": 9, "target": 0.3}}, 9, 30.0, 0.3),
        ({"curriculum.choose": "uniform"}, 64, 30.0, None),
        ({"curriculum.choose": "ssp"}, 200, inf, None),
        ({"curriculum.choose": "bandit"}, 64, inf, None),
        ({"curriculum.choose": "nobody.has:this"}, 64, 30.0, None),
        ({}, 64, 30.0, None),
    ],
)
def test_a_run_is_seen_with_its_own_options(
    config: Mapping[str, Any], window: int, half_life: float, target: float | None
) -> None:
    lens = lens_of(config)
    assert (lens.window, lens.half_life, lens.target) == (window, half_life, target)


@pytest.mark.parametrize(
    ("config", "paid"),
    [
        ({"rewards.proposer": "ssr", "play.attempts": 8}, 0.257),
        ({"rewards.proposer": "learnability", "play.attempts": 4, "play.min_viable": 6}, 0.5),
        ({"rewards.proposer": "hint_regret", "play.attempts": 8}, None),
        ({"rewards.proposer": "nobody.has:this", "play.attempts": 8}, None),
        ({"rewards.proposer": "ssr"}, None),
    ],
)
def test_what_the_reward_pays_for(config: Mapping[str, Any], paid: float | None) -> None:
    assert lens_of(config).paid == (pytest.approx(paid, abs=2e-3) if paid is not None else None)


def test_it_is_what_the_curriculum_itself_believed(replayed_run: Path) -> None:
    with Ledger.read(replayed_run) as reader:
        lens = lens_of(reader.run_row().config)
        assert lens.name == "frontier"
        looked_at = 0
        for step in range(reader.open_step()):
            seen = believed(reader, reader.seeds(), lens, after=step - 1)
            words = {one.task.id: presets.believed(one) for one in seen.candidates}
            for choice in reader.choices(step):
                if choice.mode == "replay":
                    looked_at += 1
                    assert words[choice.subject_id] in choice.why
    assert looked_at


def test_a_run_that_stands_still_can_be_looked_at(replayed_run: Path) -> None:
    with Ledger.read(replayed_run) as reader:
        lens = replace(lens_of({}), reach=1)
        assert believed(reader, reader.seeds(), lens, after=1).candidates
        assert believed(reader, reader.seeds(), lens, after=-1).candidates == ()
