"""A real, small model on both seats of the code game with tools: it fails, and the run does not.

    python -m tests.experts.small --sandbox docker

SmolLM2-135M plays one step of `code-agent` as it is shipped, but for tighter limits of its roles: two seeds with one
proposal each, and before it an evaluation: one more proposal, and an attempt on a held-out bug, as it makes none of its
own. Fails where the step does not close, a play ends without a named reason or by a fault, or a sandbox is left. Not a
test by itself: it takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from selfplay.build import execute
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.games.code.endings import REASONS
from selfplay.ledger import Ledger
from selfplay.project import Project, find_project
from tests.experts.stage import left_by_us

LIMITS = {
    **{"max_tokens = 2048": "max_tokens = 64", "context = 32768": "context = 8192", "seconds = 1800": "seconds = 300"},
    **{"turns = 64": "turns = 4", "\ntokens = 2048": "\ntokens = 64", "output = 16384": "output = 256"},
}
"""As shipped -> here."""


def project(folder: Path, shipped: Project) -> Project:
    """A project with the shipped roles, which may do less."""
    for name in ("tree_injector", "tree_repairer"):
        given, role = shipped.shipped / "roles" / name, folder / "roles" / name
        role.mkdir(parents=True)
        text = (given / "role.toml").read_text()
        for old, new in LIMITS.items():
            assert old in text, old
            text = text.replace(old, new)
        (role / "role.toml").write_text(text)
        (role / "prompt.md").write_text((given / "prompt.md").read_text())
    return Project(folder=folder, shipped=shipped.shipped, runs=folder / "runs")


def main() -> int:
    """Play the step, and print what became of each play."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sandbox", default="docker")
    asked = parser.parse_args()
    sets = (
        *("game.source=pypi:toolz==1.2.0", "policy.model=smollm2-135m", f"sandbox.kind={asked.sandbox}"),
        *("run.steps=1", "curriculum.seeds=2", "play.proposals=1", "play.attempts=2", "play.min_viable=1"),
        *("eval.every=2", "eval.tasks=1", "eval.attempts=1", "play.refills=0", "alarms.stop=[]"),
    )
    before = left_by_us(asked.sandbox)
    wrong = []
    with tempfile.TemporaryDirectory() as made:
        at = project(Path(made), find_project(explicit=Path(__file__).parents[2]))
        folder = Path(made) / "runs" / "small"
        config = load("code-agent", project=at, sets=sets, environ={})
        outcome = execute(config, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        wrong += [f"the run ended by {outcome.stop}"] if outcome.stop != "done" else []
        with Ledger.read(folder) as ledger:
            wrong += [str(one) for one in ledger.check()]
            wrong += [] if ledger.last_closed_step() == 0 else ["the step is not closed"]
            for stage in ("propose", "evaluate"):
                counts: Counter[str] = Counter()
                plays = ledger.trajectories(0, stage)
                for play in plays:
                    reasons = [verdict.reason for verdict in ledger.verdicts_of(play.id)]
                    counts[f"{play.stop} {'/'.join(reasons)}"] += 1
                    wrong += [f"{play.id} was broken by the machine"] if play.fault else []
                    wrong += [] if play.product or set(reasons) & set(REASONS) else [f"{play.id} ended for no reason"]
                print(f"{stage}: {len(plays)} plays, {dict(counts)}")
                wrong += [] if plays else [f"nobody played to {stage}"]
    wrong += [f"sandbox {name} is left" for name in left_by_us(asked.sandbox) - before]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
