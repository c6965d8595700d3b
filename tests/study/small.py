"""A small study, as tests write it."""

from __future__ import annotations

from pathlib import Path

TEXT = """
[study]
preset = "demo"
seeds = [0, 1]
budget = 1000
minutes = 30
start = "warmup"
[endpoint]
measure = "pass@1"
attempts = 4
tasks = "held_out"
compare = [["warmup", "full"]]
[dev]
seeds = [9]
[settings]
"learner.lr" = 1e-3
[arms.full]
settings = { "curriculum.choose" = "frontier" }
[arms.warmup]
steps = 3
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    """The study, with a change."""
    assert old in TEXT
    path = folder / "small.toml"
    path.write_text(TEXT.replace(old, new) if old else TEXT)
    return path
