"""How large a run is: named layers of settings between a preset and what is typed (`selfplay run --scale NAME`). Data.

A scale says how much is played and on what; the preset says what is played, and keeps its model. Each value may be
overridden by a variable or `-s`.

Not here: what fits into which memory (`sizing`), the merging (`layers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfplay.types import record


@record
class Scale:
    """One size of machine."""

    words: str
    """What it is meant for."""
    tested: bool
    """Was it ever run, on such a machine?"""
    values: Mapping[str, Any]
    """By `table.key`."""


SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        words="does it work at all? one small step, without a warm-up",
        tested=True,
        values={
            "run.steps": 1,
            "curriculum.seeds": 1,
            "play.proposals": 2,
            "play.attempts": 2,
            "play.min_viable": 1,
            "play.refills": 0,
            "policy.max_rows": 8,
            "warmup.steps": 0,
            "eval.every": 0,
        },
    ),
    "laptop": Scale(
        words="two to eight cores, 8 GB, no card",
        tested=True,
        values={
            "curriculum.seeds": 3,
            "play.proposals": 4,
            "play.attempts": 8,
            "policy.backend": "local",
            "policy.max_rows": 32,
            "learner.token_budget": 4096,
        },
    ),
    "gpu": Scale(
        words="one card, which vLLM and the learner use in turns",
        tested=False,
        values={
            "run.save_every": 1,
            "curriculum.seeds": 16,
            "play.proposals": 4,
            "play.attempts": 8,
            "policy.backend": "vllm",
            "policy.options": {"kv_gb": 8.0, "sleep": True},
            "policy.max_rows": 128,
            "learner.token_budget": 16384,
        },
    ),
    "node": Scale(
        words="eight cards, one for the learner, an engine on each of the others, a step played ahead",
        tested=False,
        values={
            "run.save_every": 1,
            "run.staleness": 1,
            "curriculum.seeds": 64,
            "play.proposals": 4,
            "play.attempts": 8,
            "policy.backend": "vllm",
            "policy.options": {"replicas": 7, "cards": "1 2 3 4 5 6 7", "kv_gb": 16.0},
            "policy.max_rows": 256,
            "learner.token_budget": 32768,
        },
    ),
    "ray": Scale(
        words="a Ray cluster: two learner ranks and two sandbox actors, as much played as on a laptop",
        tested=True,
        values={
            "run.cluster": {"sandboxes": 2},
            "curriculum.seeds": 3,
            "play.proposals": 4,
            "play.attempts": 8,
            "policy.backend": "local",
            "policy.max_rows": 32,
            "learner.token_budget": 4096,
            "learner.ranks": 2,
        },
    ),
}
"""By name, the smallest first."""

ORIGIN = "--scale "
"""What the origin of a scale's value begins with."""
