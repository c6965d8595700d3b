"""How many workers a driver can feed: real sandboxes in Ray actors, simulated generation, 1, 2, 4 and 8 of them.

    python tests/bench/scale.py [--workers 1,2,4,8] [--plays N] [--think S] [--tool S] [--sandbox KIND]

A worker is a place in which one play is under way: a reply that takes `think` seconds (`asyncio.sleep`), then a command
in a real sandbox that sleeps for `tool` seconds, `TURNS` times, then the trajectory is appended to a real ledger, which
waits for its commit. Each play has a sandbox of its own, made and closed on its actor. Actors are one for every two
workers, all of this machine.

    throughput(W)   plays a second with W workers
    efficiency(W)   throughput(W) / (W x throughput(1)); bounded by the machine's cores, which all actors share
    driver(W)       processor time of the driver's process a play: calls to actors, the ledger, the event loop
    saturation      1 / driver(largest W) plays a second keep one core of the driver busy; so many workers make them:
                    (1 / driver) x (seconds that a worker needs for a play)

The event loop has one core, so this is the size of cluster at which the driver is the limit. Reports, gates nothing.
Not here: sampling and learning (`step.py`), a local pool of sandboxes (`sandbox.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from selfplay.cluster import Nodes, Wanted
from selfplay.cluster.sandboxes import ClusterProvider
from selfplay.ledger import Ledger
from selfplay.sandbox import SandboxSpec
from selfplay.types import Seed, Stop, Trajectory, Turn, play_id

TURNS = 4
TOKENS = 256
"""Of a reply: what a trajectory's row has to hold."""


async def play(
    provider: ClusterProvider, ledger: Ledger, subject: str, index: int, *, think: float, tool: float
) -> None:
    """One play, as a rollout makes it: replies and commands by turns, then its row."""
    sandbox = await provider.create(SandboxSpec(name="python"))
    turns = [Turn(speaker="prompt", token_ids=tuple(range(TOKENS)), text="?")]
    try:
        for _ in range(TURNS):
            await asyncio.sleep(think)
            turns.append(Turn(speaker="policy", token_ids=tuple(range(TOKENS)), logprobs=(-1.0,) * TOKENS, text="!"))
            done = await sandbox.exec(["sleep", str(tool)], timeout_seconds=600.0)
            assert done.exit_code == 0, done
    finally:
        await sandbox.close()
    where = {"step": 0, "stage": "attempt", "role": "repairer", "subject_id": subject, "index": index, "attempt": 0}
    made = Trajectory(
        id=play_id("bench", **where),  # type: ignore[arg-type]
        turns=tuple(turns),
        stop=Stop.DONE,
        policy_version=(0, 0),
        **where,  # type: ignore[arg-type]
    )
    await asyncio.wrap_future(ledger.append(made))


async def measured(workers: int, asked: argparse.Namespace) -> dict[str, float]:
    """Wall-clock and driver's processor seconds of `asked.plays` plays a worker."""
    actors = max(1, workers // 2)
    wanted = Wanted(nodes=Nodes(sandboxes=actors, place_seconds=300.0), ranks=1, threads=1)
    provider = await ClusterProvider.open(asked.sandbox, wanted)
    seed = Seed(id="s", game="bench", source="bench", payload={}, split="train")
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            ledger = Ledger.create(folder, config_digest="bench", config={}, seed=0, game="bench")
            with ledger:
                await asyncio.wrap_future(ledger.append(seed))

                async def work(worker: int, plays: int, first: int) -> None:
                    for number in range(plays):
                        index = first + worker * plays + number
                        await play(provider, ledger, seed.id, index, think=asked.think, tool=asked.tool)

                await asyncio.gather(*(work(worker, 1, 0) for worker in range(workers)))
                began, busy = time.perf_counter(), time.process_time()
                await asyncio.gather(*(work(worker, asked.plays, workers) for worker in range(workers)))
                seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    finally:
        await provider.aclose()
    number = workers * asked.plays
    return {"workers": workers, "actors": actors, "plays_s": number / seconds, "driver_ms": 1e3 * cpu / number}


def main() -> None:
    """Measure, print a line each, and the arithmetic."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--plays", type=int, default=4)
    parser.add_argument("--think", type=float, default=1.0)
    parser.add_argument("--tool", type=float, default=0.2)
    parser.add_argument("--sandbox", default="bubblewrap")
    asked = parser.parse_args()
    rows = []
    for count in map(int, asked.workers.split(",")):
        rows.append(asyncio.run(measured(count, asked)))
        rows[-1]["efficiency"] = rows[-1]["plays_s"] / (count / rows[0]["workers"] * rows[0]["plays_s"])
        print(json.dumps({name: round(value, 3) for name, value in rows[-1].items()}), flush=True)
    last, alone = rows[-1], 1.0 / rows[0]["plays_s"] * rows[0]["workers"]
    cost = last["driver_ms"]
    feeds = 1e3 / cost
    print(
        f"cores: {os.cpu_count()}; a play takes a worker {alone:.2f} s alone, and the driver {cost:.1f} ms of processor"
    )
    print(f"one core of the driver feeds 1000 / {cost:.1f} = {feeds:.0f} plays a second,")
    print(f"so it saturates at {feeds:.0f} x {alone:.2f} = {feeds * alone:.0f} workers with plays like these")
    print("beyond it: processes that play whole episodes each, and hand rows to the one that has the ledger")


if __name__ == "__main__":
    main()
