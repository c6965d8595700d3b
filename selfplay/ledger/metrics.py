"""The metrics of updates, without the blobs that make reading an `Update` dear.

Not here: what they mean (`learner.tally`, `probe`).
"""

from __future__ import annotations

from collections.abc import Mapping

from selfplay.ledger import unpack
from selfplay.ledger.bulk import Ask

_PLAYED = "SELECT step, metrics FROM updates WHERE phase = 'play' AND step > ? ORDER BY step"


def played(ask: Ask, after: int) -> dict[int, Mapping[str, float]]:
    """Step -> the metrics of its update, for the closed steps above `after`."""
    return {row["step"]: unpack.json_of(row, "metrics") for row in ask(_PLAYED, after)}
