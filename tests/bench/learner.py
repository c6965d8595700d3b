"""Seconds of one learner update against the machine's own matrix products, measured in the same run.

    python tests/bench/learner.py MODEL_FOLDER [--dtype bfloat16] [--threads 2] [--repeats 3] [--json]

Shapes: `prompt 512` is 8 groups' worth of one: 8 replies of 64 tokens behind one prompt of 512; `code` is 12
groups of 8 replies of 8 to 48 tokens behind prompts of 100 to 260, as the code game has them; `skewed` is 32
sequences of 8 to 512 reply tokens that share nothing; `imitate` is 16 examples with one reply each.

The peak is the best of products of the model's own sizes, measured before and after. Arithmetic counts the
products that the update cannot do without (linear layers, attention inside the causal triangle, head at
trained positions; backward twice the forward). Share = arithmetic / seconds / peak, by wall clock and by CPU
time; the second holds on a busy machine where threads is 1. Not here: pass or fail, other trainers.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from selfplay.learner.batch import pack, partition
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.types import Batch, Example, Sample

VOCABULARY = 40_000


def samples_of(shape: str) -> tuple[Sample, ...]:
    """The samples of one shape; random ids."""
    rng = random.Random(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, VOCABULARY) for _ in range(length))

    groups = {
        "prompt 512": [(512, [64] * 8)],
        "code": [(rng.randrange(100, 261), [rng.randrange(8, 49) for _ in range(8)]) for _ in range(12)],
        "skewed": [(32, [round(8 * 64 ** (i / 31))]) for i in range(32)],
    }
    samples: list[Sample] = []
    for number, (length, replies) in enumerate(groups[shape]):
        prompt = ids(length)
        for i, reply in enumerate(replies):
            samples.append(
                Sample(
                    trajectory_id=f"{number}.{i}",
                    role="proposer" if number % 3 == 0 else "solver",
                    group_id=str(number),
                    token_ids=prompt + ids(reply),
                    trained=(False,) * length + (True,) * reply,
                    sampler_logprobs=(0.0,) * (length + reply),
                    advantage=1.0 if i % 2 else -1.0,
                )
            )
    return tuple(samples)


def examples() -> list[Example]:
    """Sixteen made-up repairs."""
    lines = [f"{n}|    value_{n} = table[{n}] + {n * n} * offset" for n in range(24)]
    return [
        Example(role="solver", source=str(i), prompt="\n".join(lines[i % 5 :]) + f"\nfix {i}:\n", replies=(lines[i],))
        for i in range(16)
    ]


def arithmetic(trainer: Trainer, samples: tuple[Sample, ...]) -> tuple[float, int, int]:
    """Floating-point operations of one update's products, tokens computed, tokens trained."""
    config: Any = trainer.model.config
    head = config.vocab_size * config.hidden_size
    body = sum(p.numel() for n, p in trainer.model.named_parameters() if p.ndim == 2 and "embed" not in n)
    total, computed, trained = 0.0, 0, 0
    for part in partition(samples, range(len(samples)), token_budget=trainer.options.token_budget):
        row = pack(samples, part)
        seen = sum(position + 1 for position in row.positions)
        width = config.num_attention_heads * (config.hidden_size // config.num_attention_heads)
        attention = 2 * seen * width * config.num_hidden_layers
        total += 3 * 2 * (len(row.token_ids) * body + len(row.targets) * head + attention)
        computed += len(row.token_ids)
        trained += len(row.targets)
    return total, computed, trained


def peak(trainer: Trainer) -> tuple[float, float]:
    """Best operations a second, by wall clock and by CPU time, over products of the model's sizes."""
    config: Any = trainer.model.config
    dtype = next(trainer.model.parameters()).dtype
    wall, cpu = 0.0, 0.0
    for rows in (512, 1024, 2048):
        a = torch.randn(rows, config.hidden_size, dtype=dtype)
        b = torch.randn(config.hidden_size, config.intermediate_size, dtype=dtype)
        operations = 20 * 2.0 * rows * config.hidden_size * config.intermediate_size
        for _ in range(4):
            found = timed(lambda a=a, b=b: [a @ b for _ in range(20)])  # type: ignore[misc]
            wall, cpu = max(wall, operations / found[0]), max(cpu, operations / found[1])
    return wall, cpu


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(trainer: Trainer, shape: str, *, repeats: int) -> dict[str, float | str]:
    """One row of the report."""
    if shape == "imitate":
        pairs = examples()
        tokenizer = trainer._tokenizer
        assert tokenizer is not None
        encoded = [(tokenizer.encode(e.prompt), (*tokenizer.encode(e.replies[0]), 2)) for e in pairs]
        samples = tuple(
            Sample(
                trajectory_id="",
                role="",
                group_id="",
                token_ids=prompt + reply,
                trained=(False,) * len(prompt) + (True,) * len(reply),
                sampler_logprobs=(),
                advantage=1.0,
            )
            for prompt, reply in encoded
        )
        work: Callable[[], object] = lambda: trainer.imitate(pairs, index=50, total=100)  # noqa: E731
    else:
        samples = samples_of(shape)
        batch = Batch(step=0, phase="play", samples=samples, temperature=1.0)
        work = lambda: trainer.update(batch)  # noqa: E731
    operations, computed, trained = arithmetic(trainer, samples)
    before = peak(trainer)
    work()
    times = [timed(work) for _ in range(repeats)]
    after = peak(trainer)
    wall, cpu = statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)
    best = max(before[0], after[0]), max(before[1], after[1])
    return {
        "shape": shape,
        "tokens": computed,
        "trained": trained,
        "seconds": wall,
        "cpu_seconds": cpu,
        "gflop": operations / 1e9,
        "peak_gflops": best[0] / 1e9,
        "share_of_peak": operations / wall / best[0],
        "share_of_peak_by_cpu": operations / cpu / best[1],
        "tokens_per_second": computed / wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--shape", action="append", choices=["prompt 512", "code", "skewed", "imitate"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    options = Options(lr=1e-6, warmup_lr=1e-5, dtype=chosen.dtype, threads=chosen.threads, token_budget=chosen.budget)
    trainer = Trainer.from_folder(chosen.model, options=options, tokenizer=HFTokenizer(chosen.model))
    digest_seconds = timed(trainer.weights_digest)[0]
    shapes = chosen.shape or ["prompt 512", "code", "skewed", "imitate"]
    rows = [measure(trainer, shape, repeats=chosen.repeats) for shape in shapes]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if chosen.json:
        print(json.dumps({"digest_seconds": digest_seconds, "peak_memory_mb": memory, "rows": rows}))
        return
    print(f"{'shape':12}{'tokens':>8}{'trained':>9}{'s':>8}{'cpu s':>8}{'GFLOP':>9}{'of peak':>9}{'by cpu':>8}")
    for row in rows:
        print(
            f"{row['shape']:12}{row['tokens']:>8}{row['trained']:>9}{row['seconds']:>8.2f}{row['cpu_seconds']:>8.2f}"
            f"{row['gflop']:>9.0f}{row['share_of_peak']:>9.2f}{row['share_of_peak_by_cpu']:>8.2f}"
        )
    print(f"digest of the weights: {digest_seconds:.2f} s; peak memory: {memory:.0f} MB; {trainer.fingerprint}")


if __name__ == "__main__":
    main()
