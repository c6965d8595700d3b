"""Does self-play learn with vLLM as it does with `local`? Both backends play the quickstart from the same warm weights.

    python -m tests.vllm.alike --vllm-python ENV/bin/python [--steps 10] [--seeds 2] [--attempts 4] [--runs FOLDER]

The weights are warmed once, with `local`, or come from the cache; each backend then starts a run from them, without a
warm-up, with the same seeds and settings. Printed are, a step and a backend: the share of valid proposals, the solve
rate with a 90 % interval, mean rewards of both sides, entropy of the policy, and how far sampler and learner were apart
in the probe; and over all steps the rates with their intervals, and the slopes of the solve rates. Replies differ from
the first token on, so what is compared are rates, within their intervals. Nothing is decided: a reader does.

A run that stands in the folder is gone on with, so the same command may be typed again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.curriculum.interval import interval
from selfplay.curriculum.posterior import Beta
from selfplay.ledger import Ledger
from selfplay.probe import of_metrics
from selfplay.types import record

COLUMNS = ("backend", "step", "valid", "solved", "90 %", "proposer", "solver", "entropy", "probe", "largest ratio", "s")


@record
class Row:
    """One step of one run."""

    step: int
    proposals: int
    valid: int
    attempts: int
    solved: int
    rewards: tuple[float | None, float | None]
    """Means of proposer and solver."""
    entropy: float
    gap: float
    """Mean difference of sampler and learner in nats."""
    ratio: float
    seconds: float


def play(name: str, runs: Path, *sets: str, steps: int) -> float:
    """Play the run, or go on with it; seconds that it took."""
    words = [word for one in sets for word in ("-s", one)]
    known = (runs / name).exists()
    command = [sys.executable, "-m", "selfplay", "run", *([] if known else ["quickstart"]), "--name", name]
    command += ["--steps", str(steps), "--json", *([] if known else words)]
    began = time.monotonic()
    with (runs / f"{name}.jsonl").open("ab") as out:
        subprocess.run(command, check=True, stdout=out, env={**os.environ, "SELFPLAY_RUNS": str(runs)})
    return time.monotonic() - began


def rows_of(runs: Path, name: str) -> list[Row]:
    """What the steps of a run were."""
    lines = (runs / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    events = [line.get("data", line) for line in map(json.loads, lines)]
    steps: dict[int, Mapping[str, Any]] = {e["step"]: e["data"] for e in events if e.get("kind") == "step"}
    with Ledger.read(runs / name) as ledger:
        updates = {update.step: update.metrics for update in ledger.updates("play")}
    found = []
    for step, data in sorted(steps.items()):
        probe = of_metrics(updates.get(step, {}))
        found.append(
            Row(
                step=step,
                proposals=data["proposals"],
                valid=data["valid"],
                attempts=data["attempts"],
                solved=data["solved"],
                rewards=(data.get("proposer_reward"), data.get("solver_reward")),
                entropy=updates.get(step, {}).get("entropy", float("nan")),
                gap=probe.gap if probe else float("nan"),
                ratio=probe.ratio_max if probe else float("nan"),
                seconds=data.get("seconds", float("nan")),
            )
        )
    return found


def rate(part: int, whole: int) -> str:
    """A share and where it lies, with nine tenths of the posterior."""
    low, high = interval(Beta(alpha=1.0 + part, beta=1.0 + whole - part))
    return f"{part / whole if whole else float('nan'):.2f} [{low:.2f}, {high:.2f}]"


def cells(backend: str, row: Row) -> list[str]:
    """Of the table's line."""
    share, _, where = rate(row.solved, row.attempts).partition(" ")
    rewards = ["-" if one is None else f"{one:+.3f}" for one in row.rewards]
    valid = f"{row.valid}/{row.proposals}"
    numbers = [f"{row.entropy:.3f}", f"{row.gap:.2e}", f"{row.ratio:.3f}", f"{row.seconds:.0f}"]
    return [backend, str(row.step), valid, f"{row.solved}/{row.attempts} {share}", where, *rewards, *numbers]


def summary(backend: str, rows: Sequence[Row]) -> str:
    """All steps together, and whether the solve rate rose."""
    solved, attempts = sum(row.solved for row in rows), sum(row.attempts for row in rows)
    valid, proposals = sum(row.valid for row in rows), sum(row.proposals for row in rows)
    points = [(row.step, row.solved / row.attempts) for row in rows if row.attempts]
    slope = statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else float("nan")
    worst = max((row.gap for row in rows), default=float("nan"))
    return (
        f"{backend}: {len(rows)} steps; valid {rate(valid, proposals)}; solved {rate(solved, attempts)}; "
        f"solve rate {slope:+.4f} a step; largest probe {worst:.2e} nats"
    )


def main() -> None:
    """Play both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", default=os.environ.get("SELFPLAY_VLLM_PYTHON", ""))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2, help="a step")
    parser.add_argument("--proposals", type=int, default=4, help="a seed")
    parser.add_argument("--attempts", type=int, default=4, help="a task")
    parser.add_argument("--runs", type=Path, default=Path("runs/alike"))
    asked = parser.parse_args()
    runs: Path = asked.runs.absolute()
    runs.mkdir(parents=True, exist_ok=True)
    play(
        "warm",
        runs,
        "curriculum.seeds=1",
        "play.proposals=2",
        "play.attempts=2",
        "play.refills=0",
        "eval.every=0",
        steps=1,
    )
    with Ledger.read(runs / "warm") as ledger:
        [first] = [save for save in ledger.saves() if save.step == -1]
    sizes = (f"curriculum.seeds={asked.seeds}", f"play.proposals={asked.proposals}", f"play.attempts={asked.attempts}")
    same = (
        f"policy.model={runs / 'warm' / first.path}",
        "warmup.steps=0",
        "play.refills=0",
        "eval.every=0",
        "run.save_every=5",
        *sizes,
    )
    chosen = {
        "local": ("policy.backend=local",),
        "vllm": ("policy.backend=vllm", f"policy.options={{python='{asked.vllm_python}', kv_gb=1.0}}"),
    }
    table: list[list[str]] = []
    ends: list[str] = []
    for backend, own in chosen.items():
        play(backend, runs, *same, *own, steps=asked.steps)
        rows = rows_of(runs, backend)
        table += [cells(backend, row) for row in rows]
        ends.append(summary(backend, rows))
        shown = [list(COLUMNS), ["---"] * len(COLUMNS), *table]
        print("\n".join("| " + " | ".join(line) + " |" for line in shown), *ends, sep="\n", flush=True)


if __name__ == "__main__":
    main()
