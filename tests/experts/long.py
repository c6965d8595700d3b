"""Experts on whole packages: how many of the artifacts that they hand over become tasks, and how many repairs pass.

    python -m tests.experts.long --sandbox docker --proposals 10 --least 30

Each package is played for one step: `--proposals` seeds with one expert each, which take other functions where they
are told the same module, and one expert and one idle solver a task. Fails where fewer than `--least` tasks were made in
all, or an expert's repair does not pass. Not a test by itself: it takes minutes a package.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from selfplay.build import execute
from selfplay.cache import cache_folder
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.games.code.source import fetch
from selfplay.ledger import Ledger
from selfplay.project import find_project
from tests.experts.players import called, in_turn, proposer, solver
from tests.experts.stage import Cast, scripted
from tests.experts.stage import project as staged

SOURCES = ("pypi:toolz==1.2.0", "pypi:boltons==24.0.0", "pypi:more-itertools==10.5.0", "pypi:attrs==24.2.0")
"""The last one has a `src` layout."""


def played(source: str, *, sandbox: str, proposals: int) -> Counter[str]:
    """What became of one step on a package: reasons of proposals, and of the experts' attempts."""
    shipped = find_project(explicit=Path(__file__).parents[2])
    clean = fetch(source, cache=cache_folder()).root
    cast = Cast(
        proposers={f"expert{nth}": proposer(3 * nth) for nth in range(proposals)},
        solvers={"expert": solver(clean), "idle": in_turn(called("submit"))},
    )
    sets = (
        *(f"game.source={source}", "policy.model=toy", f"sandbox.kind={sandbox}", "run.steps=1", "alarms.stop=[]"),
        *(
            f"curriculum.seeds={proposals}",
            "curriculum.choose=uniform",
            "curriculum.options={}",
            "learner.dtype=float32",
        ),
        *("play.proposals=1", "play.attempts=2", "play.refills=0", "play.min_viable=1"),
        *("learner.token_budget=4096", "learner.dtype=float32", "sandbox.workers=0"),
    )
    with tempfile.TemporaryDirectory() as made, scripted(cast):
        at = staged(Path(made), shipped)
        folder = Path(made) / "runs" / "long"
        config = load("code-agent", project=at, sets=sets, environ={})
        execute(config, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        with Ledger.read(folder) as ledger:
            assert ledger.check() == (), ledger.check()
            found = Counter(verdict.reason for verdict in ledger.verdicts(0, "propose", "mint").values())
            judged = ledger.verdicts(0, "attempt", "judge")
            for attempt in ledger.trajectories(0, "attempt"):
                if attempt.turns[1].text.startswith("I am expert."):
                    found[f"repair {judged[attempt.id].reason}"] += 1
            found["tasks"] = len(ledger.tasks(0))
    return found


def main() -> int:
    """Play every package."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sandbox", default="docker")
    parser.add_argument("--proposals", type=int, default=10)
    parser.add_argument("--least", type=int, default=30)
    parser.add_argument("sources", nargs="*", default=SOURCES)
    asked = parser.parse_args()
    tasks = failed = 0
    for source in asked.sources:
        found = played(source, sandbox=asked.sandbox, proposals=asked.proposals)
        tasks += found["tasks"]
        repairs = sum(count for name, count in found.items() if name.startswith("repair "))
        failed += repairs - found["repair passed"]
        print(f"{source}: {dict(found)}", flush=True)
    print(f"{tasks} tasks, {failed} repairs of experts that did not pass")
    return 0 if tasks >= asked.least and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
