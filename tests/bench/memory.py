"""Peak memory of one learner update, predicted and measured, each point in a fresh process.

    python tests/bench/memory.py MODEL_FOLDER [--points 0,2] [--threads 2] [--json]

A point is a layout of samples (prompt, and the replies behind it) and what of the settings decides memory. A small
update comes first, so that the optimizer's moments exist as they do in all but a run's first update. Measured is
the largest resident set of the process; predicted is `learner.memory.fixed` and the largest micro-batch's
`update_mb`, without a sampler. No constant of `learner.memory` was chosen by looking at the points marked
*kept out*. Not here: pass or fail.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfplay.learner import memory
from selfplay.learner.batch import pack
from selfplay.learner.optimizer import Kind
from selfplay.learner.options import Options
from selfplay.types import Batch, Sample, record

Layout = Sequence[tuple[int, Sequence[int]]]

SHARED: Layout = [(512, [64] * 8)]
GROUPS: Layout = [(512, [64] * 8)] * 6
SKEWED: Layout = [(32, [round(8 * 64 ** (i / 15))]) for i in range(16)]
CODE: Layout = [(100 + 14 * i, [8 + 5 * j for j in range(8)]) for i in range(12)]
LONG: Layout = [(3000, [48])]


@record
class Point:
    """What is measured."""

    name: str
    layout: Layout
    budget: int
    dtype: memory.DType = "bfloat16"
    recompute: bool = False
    lora_rank: int = 0
    optimizer: Kind = "adamw"
    kept_out: bool = False

    @property
    def text(self) -> str:
        """In words."""
        parts = [f"{self.name}, {self.dtype}, budget {self.budget}"]
        parts += ["layers computed again"] * self.recompute + [f"rank {self.lora_rank}"] * bool(self.lora_rank)
        parts += [self.optimizer] * (self.optimizer != "adamw") + ["kept out"] * self.kept_out
        return ", ".join(parts)


POINTS = (
    Point(name="8 replies of 64 behind a prompt of 512", layout=SHARED, budget=1024),
    Point(name="replies of 8 to 512, nothing shared", layout=SKEWED, budget=2048),
    Point(name="replies of 8 to 512, nothing shared", layout=SKEWED, budget=2048, recompute=True),
    Point(name="8 replies of 64 behind a prompt of 512", layout=SHARED, budget=1024, dtype="float32"),
    Point(name="6 groups of 8 replies of 64 behind 512", layout=GROUPS, budget=4096),
    Point(name="8 replies of 64 behind a prompt of 512", layout=SHARED, budget=1024, lora_rank=16),
    Point(name="replies of 8 to 512, nothing shared", layout=SKEWED, budget=2048, optimizer="adamw8bit"),
    Point(name="a reply of 48 behind 3000", layout=LONG, budget=4096, recompute=True),
    Point(name="12 groups of 8 replies of 8 to 43", layout=CODE, budget=4096, lora_rank=16, kept_out=True),
    Point(name="replies of 8 to 512, nothing shared", layout=SKEWED, budget=4096, dtype="float32", recompute=True),
    Point(name="12 groups of 8 replies of 8 to 43", layout=CODE, budget=2048, kept_out=True),
    Point(name="12 groups of 8 replies of 8 to 43", layout=CODE, budget=2048, dtype="float32", kept_out=True),
    Point(name="12 groups of 8 replies of 8 to 43", layout=CODE, budget=4096, recompute=True, kept_out=True),
)


def samples_of(layout: Layout) -> tuple[Sample, ...]:
    """Random ids."""
    rng = random.Random(0)
    samples: list[Sample] = []
    for number, (length, replies) in enumerate(layout):
        prompt = tuple(rng.randrange(3, 40_000) for _ in range(length))
        for i, reply in enumerate(replies):
            samples.append(
                Sample(
                    trajectory_id=f"{number}.{i}",
                    role="solver",
                    group_id="g",
                    token_ids=prompt + tuple(rng.randrange(3, 40_000) for _ in range(reply)),
                    trained=(False,) * length + (True,) * reply,
                    sampler_logprobs=(0.0,) * (length + reply),
                    advantage=1.0 if i % 2 else -1.0,
                )
            )
    return tuple(samples)


def peak_mb() -> float:
    """Largest resident set of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / memory.MB


def measure(folder: Path, point: int, *, threads: int) -> dict[str, Any]:
    """One point, in this process."""
    from selfplay.learner.trainer import Trainer

    imported = peak_mb()
    chosen = POINTS[point]
    options = Options(
        lr=1e-6,
        warmup_lr=1e-4,
        dtype=chosen.dtype,
        token_budget=chosen.budget,
        threads=threads,
        memory_mb=1.0 if chosen.recompute else None,
        lora_rank=chosen.lora_rank,
        optimizer=chosen.optimizer,
    )
    trainer = Trainer.from_folder(folder, options=options)
    trainer.update(Batch(step=0, phase="play", samples=samples_of([(4, [4, 4])]), temperature=1.0))
    before, began = peak_mb(), time.perf_counter()
    samples = samples_of(chosen.layout)
    update = trainer.update(Batch(step=1, phase="play", samples=samples, temperature=1.0))
    shape = memory.shape_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    assert shape is not None
    setup = memory.Setup(dtype=chosen.dtype, lora_rank=chosen.lora_rank, optimizer=chosen.optimizer)
    rows = [pack(samples, part) for part in update.partition]
    needs = [memory.update_mb(shape, row, setup=setup, recompute=chosen.recompute) for row in rows]
    largest = max(needs, key=lambda need: sum(need.values()))
    parts = memory.fixed(shape, setup) | largest
    return {
        "point": chosen.text,
        "micro_batches": len(update.partition),
        "parts_mb": {key: round(value) for key, value in parts.items()},
        "imported_mb": imported,
        "without_activations_mb": before,
        "predicted_mb": sum(parts.values()),
        "measured_mb": peak_mb(),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    """Every point in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", default=",".join(map(str, range(len(POINTS)))))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.folder, given.one, threads=given.threads)))
        return
    if not given.json:
        print("| point | predicted, MB | measured, MB | ratio | seconds |\n|---|--:|--:|--:|--:|")
    for point in map(int, given.points.split(",")):
        command = [sys.executable, __file__, str(given.folder), "--one", str(point), "--threads", str(given.threads)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        if given.json:
            print(json.dumps(row), flush=True)
            continue
        ratio = row["measured_mb"] / row["predicted_mb"]
        print(
            f"| {row['point']} | {row['predicted_mb']:.0f} | {row['measured_mb']:.0f} | {ratio:.2f} | "
            f"{row['seconds']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
