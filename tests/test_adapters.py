"""Whole runs whose adapters learn, or whose moments have 8 bits: interrupted, checked, replayed, forked."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import fork
from selfplay.audit import audit
from selfplay.build import Outcome
from selfplay.config import Config, diff
from selfplay.errors import UserError
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.replay import replay

Play = Callable[..., Outcome]
Configured = Callable[..., Config]

RANK = "learner.lora_rank=4"
KL = "learner.kl=0.05"
TORCHAO = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def problems(folder: Path) -> list[str]:
    return [problem for checked in audit(folder) for problem in checked.problems]


@pytest.mark.parametrize(
    "sets", [(RANK,), (RANK, KL), pytest.param(("learner.optimizer=adamw8bit",), marks=TORCHAO)], ids="-".join
)
def test_an_interrupted_run_ends_as_the_whole_one(
    tmp_path: Path, play: Play, project: Project, sets: tuple[str, ...]
) -> None:
    play(tmp_path / "whole", *sets, steps=5)
    folder = tmp_path / "parts"
    play(folder, *sets, "run.save_every=100", steps=3)
    if KL not in sets:
        shutil.rmtree(folder / "weights")
    play(folder, *sets, steps=5)
    assert digests(folder) == digests(tmp_path / "whole")
    assert problems(folder) == problems(tmp_path / "whole") == []
    with Ledger.read(folder) as ledger:
        updates = [update for update in ledger.updates("play") if update.skipped is None]
    assert len({update.weights_digest for update in updates}) == len(updates) >= 2
    found = replay(tmp_path / "whole", 4, project=project, say=lambda words: None)
    assert found.same_fingerprint
    assert found.equal


def test_a_fork_keeps_what_its_save_is_made_of(tmp_path: Path, play: Play, toy_config: Configured) -> None:
    parent = tmp_path / "old"
    play(parent, RANK, steps=4)
    old = toy_config("run.steps=2", RANK)
    for other, words in (
        (toy_config("run.steps=2"), "has weights of learner.lora_rank `4`, which `0` cannot take over"),
        (toy_config("run.steps=2", RANK, "learner.optimizer=adamw8bit"), "has moments of `adamw`, which `adamw8bit`"),
    ):
        with pytest.raises(UserError, match=words):
            fork.find(parent, diff(old, other))
    config = toy_config("run.steps=2", RANK, "learner.lr=0.002")
    fork.make(config, fork.find(parent, diff(old, config)), folder=tmp_path / "new")
    play(tmp_path / "new", RANK, "learner.lr=0.002", steps=6)
    assert problems(tmp_path / "new") == []
    with Ledger.read(parent) as before, Ledger.read(tmp_path / "new") as after:
        assert after.saves()[0].weights_digest == before.saves()[-1].weights_digest
        assert after.saves()[-1].weights_digest != after.saves()[0].weights_digest


def test_adapters_learn_the_toy_game_s_format(tmp_path: Path, play: Play) -> None:
    """Not a claim about speed: 4 valid proposals in the first eight steps were 12 in the last when this was written."""
    play(tmp_path / "run", RANK, "learner.lr=0.003", steps=24)
    with Ledger.read(tmp_path / "run") as ledger:
        tallies = [row.tallies for row in ledger.step_rows()]
    valid = [sum(t.valid for place, t in one.items() if place.startswith("propose/")) for one in tallies]
    assert sum(valid[-8:]) > sum(valid[:8])
