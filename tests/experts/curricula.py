"""Every curriculum on the code game with tools: experts play a few steps of it, and its ledger is whole.

    python -m tests.experts.curricula [--sandbox bubblewrap] [--steps 3] [NAME ...]

Printed for each: choices by mode and strategy, tasks, solved attempts. Exits with 1 where a ledger is not whole, no
task came about, or the ladder was not climbed.

Not covered: whether a curriculum chooses well (`tests/bench/curriculum.py`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from selfplay.build import execute
from selfplay.cache import cache_folder
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.games.code.source import fetch
from selfplay.ledger import Ledger, Reader
from selfplay.project import find_project
from tests.experts.players import half, proposer, solver
from tests.experts.stage import Cast, scripted
from tests.experts.stage import project as staged

SOURCE = "pypi:toolz==1.2.0"
OPTIONS: Mapping[str, str] = {
    "uniform": "{}",
    "frontier": "{replay=0.5, probation=0.2}",
    "ssp": '{refill="full"}',
    "ssr": '{strategies="removal,direct", second=0.5}',
    "bandit": "{}",
    "ladder": '{strategies="removal,direct,feature", enough=1, unlock=0.0, review=0.0}',
}
"""Curriculum -> its options; what the paper has of `ssr` needs a past, which a package of the index has not."""
SEEDS = 3


def main() -> int:
    """Play them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("names", nargs="*", default=list(OPTIONS))
    asked = parser.parse_args()
    wrong = [said for name in asked.names for said in played(name, sandbox=asked.sandbox, steps=asked.steps)]
    print(*wrong, f"{len(wrong)} things did not hold", sep="\n")
    return 1 if wrong else 0


def played(name: str, *, sandbox: str, steps: int) -> list[str]:
    """Play one; what did not hold, in sentences."""
    shipped = find_project(explicit=Path(__file__).parents[2])
    clean = fetch(SOURCE, cache=cache_folder()).root
    cast = Cast(
        proposers={f"expert{nth}": proposer(5 * nth) for nth in range(SEEDS * steps)},
        solvers={"expert": solver(clean), "half": half(clean)},
    )
    sets = [
        *(f"game.source={SOURCE}", "policy.model=toy", f"sandbox.kind={sandbox}", f"run.steps={steps}"),
        *(f"curriculum.choose={name}", f"curriculum.options={OPTIONS[name]}", f"curriculum.seeds={SEEDS}"),
        *("play.proposals=1", "play.attempts=2", "play.refills=1", "play.min_viable=1", "alarms.stop=[]"),
        *("learner.token_budget=4096", "learner.dtype=float32", "sandbox.workers=0"),
    ]
    with tempfile.TemporaryDirectory() as made, scripted(cast):
        at = staged(Path(made), shipped, turns=40)
        folder = Path(made) / "runs" / name
        config = load("code-agent", project=at, sets=sets, environ={})
        execute(config, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        with Ledger.read(folder) as ledger:
            return looked_at(name, ledger, steps=steps)


def looked_at(name: str, ledger: Reader, *, steps: int) -> list[str]:
    """Say what was played; what did not hold, in sentences."""
    choices = [choice for step in range(steps) for choice in ledger.choices(step)]
    asked = Counter(f"{choice.mode} {choice.terms.get('strategy', '')}".strip() for choice in choices)
    tasks = sum(len(ledger.tasks(step)) for step in range(steps))
    judged = [verdict for step in range(steps) for verdict in ledger.verdicts(step, "attempt", "judge").values()]
    passed = sum(bool(verdict.passed) for verdict in judged)
    said = ", ".join(f"{what} {count}" for what, count in asked.items())
    print(f"{name}: {said}; {tasks} tasks, {passed} of {len(judged)} attempts solved", flush=True)
    wrong = [f"{name}: {one}" for one in ledger.check()]
    wrong += [] if tasks and passed else [f"{name}: no task, or none was solved"]
    climbed = name != "ladder" or {"propose removal", "propose direct"} <= asked.keys()
    return wrong + ([] if climbed else [f"{name}: one rung only"])


if __name__ == "__main__":
    sys.exit(main())
