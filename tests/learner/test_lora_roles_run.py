"""A run whose roles have adapters of their own: played, gone on with, replayed, and refused where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import samplers
from selfplay.build import Outcome
from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.learner.weights import read
from selfplay.ledger import Ledger

OWN = ("learner.lora_rank=4", "learner.lora_per_role=true", "learner.lr=1e-2", "run.save_every=2")
Played = Callable[..., Outcome]


def test_a_run_goes_on_where_it_stopped_as_if_it_had_not(play: Played, tmp_path: Path) -> None:
    play(tmp_path / "whole", *OWN, steps=3)
    for steps in (1, 3):
        # note: the first launch ends without a save after its last update, so the second applies it again.
        play(tmp_path / "cut", *OWN, steps=steps)
    with Ledger.read(tmp_path / "whole") as whole, Ledger.read(tmp_path / "cut") as cut:
        assert whole.check() == cut.check() == ()
        digests = [[ledger.update(step).weights_digest for step in range(3)] for ledger in (whole, cut)]  # type: ignore[union-attr]
        assert digests[0] == digests[1]
        assert len(set(digests[0])) > 1
        updates = [whole.update(step) for step in range(3)]
        assert all(update is not None and update.metrics["probe_gap"] < 1e-4 for update in updates)
        save = whole.saves()[-1]
    stored = read(tmp_path / "whole" / save.path)
    assert stored.counters["lora_roles"] == "echo_solver,echo_proposer"
    of_role = {
        role: [name for name in stored.tensors if f".{role}." in name] for role in ("echo_solver", "echo_proposer")
    }
    assert len(of_role["echo_solver"]) == len(of_role["echo_proposer"]) == len(stored.tensors) / 2


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (("learner.lora_per_role=true",), "learner.lora_rank is 0"),
        ((*OWN, "policy.backend=vllm"), "samples with one set of weights for all roles"),
        ((*OWN, "learner.ranks=2"), "ranks share one adapter"),
    ],
)
def test_what_cannot_be_is_refused_by_the_plan(
    sets: tuple[str, ...], why: str, toy_config: Callable[..., Config]
) -> None:
    with pytest.raises(UserError, match=why):
        samplers.check(toy_config(*sets))
