"""Reads the events of `selfplay demo --json` and fails unless both roles got visibly better.

Not a test by itself: CI runs it on the demo's output, `tests/test_demo.py` imports `learnt`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def learnt(steps: Iterable[Mapping[str, Any]], *, window: int = 10) -> tuple[float, float, float, float]:
    """(valid share, solve rate) of the first and of the last `window` steps, in this order.

    Raises:
        AssertionError: the last are not clearly better than the first.
    """
    rows = list(steps)
    assert len(rows) >= 2 * window, f"only {len(rows)} steps"

    def share(part: list[Mapping[str, Any]], top: str, bottom: str) -> float:
        return sum(row[top] for row in part) / max(1, sum(row[bottom] for row in part))

    first, last = rows[:window], rows[-window:]
    before, after = share(first, "valid", "proposals"), share(last, "valid", "proposals")
    unsolved, solved = share(first, "solved", "attempts"), share(last, "solved", "attempts")
    assert after > before + 0.3, f"valid share {before:.2f} -> {after:.2f}"
    assert solved > unsolved + 0.3, f"solve rate {unsolved:.2f} -> {solved:.2f}"
    return before, unsolved, after, solved


if __name__ == "__main__":
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    events = [line.get("data", line) for line in lines]
    numbers = learnt(event["data"] for event in events if event.get("kind") == "step")
    print("valid {:.2f}, solved {:.2f} -> valid {:.2f}, solved {:.2f}".format(*numbers))
