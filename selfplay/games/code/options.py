"""`game.options` of the code game: how its seeds are split.

Not here: the split itself (`opened`).
"""

from __future__ import annotations

from selfplay.types import record

SPLITS = ("function", "module")


@record
class Options:
    """What a run may set."""

    split: str = "function"
    """Whole what is held out together: each `function` by itself, or all of a `module`."""
    distinct: bool = False
    """Give held-out functions back whose program is also a train function's or the warm-up's (`alike`)."""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"option `split` is {self.split!r}, expected {' or '.join(SPLITS)}")
