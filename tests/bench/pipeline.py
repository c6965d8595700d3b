"""How close the loop comes to what its busiest stage needs: the real loop, stages and ledger on simulated work.

    python tests/bench/pipeline.py [--steps N] [--only MIX]...

A reply and a decision sleep for a while that is drawn by their id; replies wait for one of `PLACES`, decisions for one
of `WORKERS`. An update burns processor time on the torch thread, without Python's lock. Nothing else is simulated:
choices, records, groups, commits and closing steps are those of any run. Every figure is of what was measured, so a
slept or burnt second that took longer counts as long as it took.

The ideal, with S seconds of replies, D of decisions and L of updates, is what no order of the same work can beat:

    staleness 0     sum over steps of max(S / places, D / workers, C) + L, since an update waits for its step's last
                    verdict, and the next step for the update
    staleness k     max(sum S / places, sum D / workers, sum L, chain): the stages of different steps overlap, but for
                    the chain of every (k + 1)th step, each of which begins when the one before it in the chain is
                    closed: its sum of C + L. Filling and draining the pipeline, once a run, counts as a loss.

C is the longest way of a step from a proposal to the verdict of an attempt. Tasks are committed in submission order, so
an attempt waits for the mints of all proposals before its task's.

Mixes: long and short replies, replies of skewed lengths, decisions that fail and are tried again, a slow learner. To
reach: 1.1. Not here: real sampling and verification (`step.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline_work import Game, Learner, Mix, Policy, Spent

from selfplay import loop
from selfplay.ahead import late
from selfplay.alarms import Watch
from selfplay.curriculum import CURRICULA
from selfplay.evaluation import during
from selfplay.events import Interrupt, ignore
from selfplay.learner.estimators import ESTIMATORS
from selfplay.ledger import Ledger
from selfplay.rollout import Player
from selfplay.stages import Clock, Pools
from selfplay.types import Trajectory, task_id
from selfplay.warmup import WarmUp

PLACES, WORKERS = 16, 4
SEEDS, PROPOSALS, ATTEMPTS = 3, 4, 4
REACH = 1.1


MIXES = {
    "long": Mix(reply=0.4, decision=0.02, update=0.25),
    "short": Mix(reply=0.08, decision=0.08, update=0.25),
    "skewed": Mix(reply=0.2, decision=0.05, update=0.25, spread=1.0),
    "failing": Mix(reply=0.15, decision=0.08, update=0.25, faults=0.2),
    "learning": Mix(reply=0.15, decision=0.04, update=1.0),
}


def settings(steps: int, staleness: int) -> loop.Settings:
    """Of a run of the bench."""
    return loop.Settings(
        seed=0,
        steps=steps,
        staleness=staleness,
        save_every=1000,
        keep_saves=1,
        seeds_per_step=SEEDS,
        proposals=PROPOSALS,
        attempts=ATTEMPTS,
        hinted=0,
        looks=(),
        min_groups=1,
        max_refills=0,
        novelty=0.0,
        kl=0.0,
        temperature=1.0,
        train_roles=("proposer", "solver"),
        warmup=WarmUp(steps=0, examples=1, check_every=0),
        alarms=Watch(stop=(), agreement=1.0, entropy_floor=0.0),
        evaluation=during.Plan(every=0, tasks=1, attempts=1),
        rows=PLACES,
        workers=WORKERS,
    )


async def played(folder: Path, mix: Mix, *, steps: int, staleness: int) -> tuple[float, Spent, list[Trajectory]]:
    """Seconds of the whole, what was spent, and every trajectory."""
    spent = Spent()
    learner = Learner(mix, spent)
    policy, game = Policy(mix, learner), Game(mix, spent)
    torch_thread = ThreadPoolExecutor(1)
    with Ledger.create(folder, config_digest="bench", config={}, seed=0, game=game.name) as ledger:
        made = settings(steps, staleness)
        pools = Pools(
            ledger=ledger,
            player=Player(policy=policy, config_digest="bench", seed=0),
            observe=ignore,
            interrupt=Interrupt(),
            clock=Clock(),
            rows=asyncio.Semaphore(made.rows),
            workers=asyncio.Semaphore(made.workers),
            retries=made.retries,
        )
        run = loop.Run(
            settings=made,
            config_digest="bench",
            folder=folder,
            ledger=ledger,
            game=game,
            policy=policy,
            learner=learner,
            curriculum=late(CURRICULA["uniform"], staleness),
            estimator=ESTIMATORS["grpo"],
            pools=pools,
            torch_thread=torch_thread,
            warm_cache=None,
        )
        began = time.monotonic()
        await loop.run(run)
        wall = time.monotonic() - began
        plays = [play for step in range(steps) for play in submitted(ledger, step)]
    torch_thread.shutdown()
    return wall, spent, plays


def submitted(ledger: Ledger, step: int) -> list[Trajectory]:
    """The plays of a step, proposals first, in submission order."""
    place = {choice.subject_id: choice.index for choice in ledger.choices(step)}
    proposals = sorted(ledger.trajectories(step, "propose"), key=lambda play: (place[play.subject_id], play.index))
    return [*proposals, *ledger.trajectories(step, "attempt")]


def chain(plays: Sequence[Trajectory], spent: Spent) -> float:
    """C of the step that `plays` are of, in the order in which they were submitted."""
    whole = {play.id: play.seconds + spent.by_place[play.id] for play in plays}
    committed: dict[str, float] = {}
    last = 0.0
    for play in plays:
        if play.stage == "propose":
            last = committed[task_id("bench", game=Game.name, key=play.id)] = max(last, whole[play.id])
    return max((whole[play.id] + committed[play.subject_id] for play in plays if play.stage == "attempt"), default=last)


def ideal(spent: Spent, plays: Sequence[Trajectory], *, steps: int, staleness: int) -> tuple[float, str]:
    """The bound in seconds, and what it is made of."""
    for play in plays:
        spent.by_step[play.step, "reply"] += play.seconds
    sums = {
        what: [spent.by_step[step, what] / width for step in range(steps)]
        for what, width in (("reply", PLACES), ("decision", WORKERS), ("update", 1))
    }
    chains = [chain([play for play in plays if play.step == step], spent) for step in range(steps)]
    words = ", ".join(f"{what} {sum(values):.2f}" for what, values in sums.items())
    if not staleness:
        whole = [
            max(r, d, c) + u for r, d, c, u in zip(sums["reply"], sums["decision"], chains, sums["update"], strict=True)
        ]
        return sum(whole), f"{words}, C {sum(chains):.2f}"
    apart = staleness + 1
    behind = max(sum(chains[at::apart]) + sum(sums["update"][at::apart]) for at in range(apart))
    return max(*map(sum, sums.values()), behind), f"{words}, chain {behind:.2f}"


def main() -> int:
    """Play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", action="append", choices=list(MIXES))
    parser.add_argument("--staleness", type=int, action="append")
    asked = parser.parse_args()
    print(
        f"{asked.steps} steps of {SEEDS} x {PROPOSALS} proposals, {ATTEMPTS} attempts a task; {PLACES} places, "
        f"{WORKERS} workers, load {os.getloadavg()[0]:.1f}; to reach: {REACH}"
    )
    for staleness in asked.staleness or (0, 1, 2):
        for name in asked.only or MIXES:
            with tempfile.TemporaryDirectory() as folder:
                job = played(Path(folder) / "run", MIXES[name], steps=asked.steps, staleness=staleness)
                wall, spent, plays = asyncio.run(job)
            bound, words = ideal(spent, plays, steps=asked.steps, staleness=staleness)
            print(
                f"staleness {staleness}  {name:>9}  wall {wall:6.2f} s  ideal {bound:6.2f} s  "
                f"ratio {wall / bound:5.2f}  ({words})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
