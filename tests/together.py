"""Whether a sampler with weights of its own had the learner's in every step of a run."""

from __future__ import annotations

from selfplay.ledger import Ledger
from selfplay.probe import of_metrics

BOUND = 1e-3
"""Nats, in float32."""


def check_together(ledger: Ledger, *, steps: int) -> None:
    """The probe after every update saw one model, and every step was sampled from what the one before had learnt."""
    updates = ledger.updates("play")
    for update in updates:
        found = of_metrics(update.metrics)
        assert found is not None
        assert found.tokens > 0
        assert found.gap < BOUND
        assert found.sampler_version == found.learner_version == update.policy_version
    versions = [{t.policy_version for t in ledger.trajectories(step, "propose")} for step in range(steps)]
    assert versions == [{(v, v)} for v in (0, *[u.policy_version for u in updates[:-1]])]
    assert updates[-1].policy_version > 0, "something was learnt"
