"""Fails unless a run of the code game closed its first step, judged by tests, with a change of the weights.

Not a test by itself: CI runs it on the quickstart's folder.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from selfplay.ledger import Ledger


def main(folder: Path) -> None:
    """Print what the ledger says of step 0, and check it."""
    with Ledger.read(folder) as ledger:
        assert ledger.last_closed_step() >= 0, "no step is closed"
        assert ledger.check() == (), ledger.check()
        minted = ledger.verdicts(0, "propose", "mint").values()
        judged = ledger.verdicts(0, "attempt", "judge").values()
        warmed, played = ledger.updates("warmup"), ledger.update(0)
    reasons = Counter(verdict.reason for verdict in minted)
    outcomes = Counter(verdict.reason for verdict in judged)
    print(f"proposals {dict(reasons)}; attempts {dict(outcomes)}")
    assert reasons["valid"], "no proposal became a task"
    assert not any(verdict.fault for verdict in (*minted, *judged)), "the machine failed"
    assert {"passed", "tests_fail"} & set(outcomes), "no attempt was judged by tests"
    assert warmed, "there was no warm-up"
    assert played is not None, "the step has no update"
    assert played.skipped is None, played.skipped
    assert played.weights_digest != warmed[-1].weights_digest, "the weights did not change"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
