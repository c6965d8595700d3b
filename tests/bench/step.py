"""Where a step's time goes: seconds for sampling, verification, learning, saving and everything else.

    python tests/bench/step.py [PRESET] [--steps N] [-s key=value]...

Plays N steps of PRESET as a fresh run in a temporary folder, through the command line, and reads the
split from its ledger; peak memory is the child's. Reports, gates nothing. The limit beside it:
"everything else" below 2 % of a step.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selfplay.ledger import Ledger

STAGES = ("sampling", "verification", "learning", "saving", "other")


def main() -> int:
    """Run, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="quickstart")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("-s", dest="sets", action="append", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        command = [
            sys.executable,
            "-m",
            "selfplay",
            "run",
            asked.preset,
            "--steps",
            str(asked.steps),
            "--name",
            "bench",
        ]
        for text in asked.sets:
            command += ["-s", text]
        began = time.monotonic()
        subprocess.run(command, check=True, env={**os.environ, "SELFPLAY_RUNS": runs}, stdout=subprocess.DEVNULL)
        wall = time.monotonic() - began
        with Ledger.read(Path(runs) / "bench") as ledger:
            steps = ledger.step_rows()
            first = steps[0].closed_at - (ledger.run_row().at)
    print(f"{asked.preset}: {wall:.1f} s for {len(steps)} steps; first step closed after {first:.1f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")
    for name in STAGES:
        values = [row.stage_seconds.get(name, 0.0) for row in steps]
        shares = [value / sum(row.stage_seconds.values()) for value, row in zip(values, steps, strict=True)]
        print(f"{name:>13}  median {statistics.median(values):7.2f} s  {statistics.median(shares):6.1%} of a step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
