"""The settings of one run: typed, validated, each with the place it came from.

One TOML file, two levels. Order, last wins: built-in, the project's `selfplay.toml`, the preset or file,
`--scale`, environment `SELFPLAY_<TABLE>_<KEY>`, `-s table.key=value`. A digest of what affects results guards resume.

Not here: what a setting does (its component), command-line options (`cli.run`).

Example:
    >>> config = load("demo", project=find_project(explicit=None), sets=["run.steps=3"])
    >>> config.run.steps, config.provenance["run.steps"]
    (3, '-s')
"""

from __future__ import annotations

from selfplay.config.layers import from_run, load
from selfplay.config.settings import Config, Difference, diff
from selfplay.config.tables import Table

__all__ = ["Config", "Difference", "Table", "diff", "from_run", "load"]
