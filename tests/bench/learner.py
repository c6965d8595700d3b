"""Seconds of one learner update: against the machine's own matrix products, and against TRL on the same batch.

    python tests/bench/learner.py MODEL_FOLDER [--dtype bfloat16] [--threads 2] [--repeats 3] [--json]
    python tests/bench/learner.py MODEL_FOLDER --peer trl

Shapes: `shared` is 8 replies of 64 tokens behind one prompt of 512; `skewed` is 8 replies of 8 to 512 tokens, each
behind a prompt of its own of 32; `even` is 8 replies of 128 behind prompts of 64, nothing shared, nothing skewed.
Without a peer also `code`, 12 groups of 8 replies of 8 to 48 tokens behind prompts of 100 to 260, as the code game has
them, and `imitate`, 16 supervised examples.

The peak is the best of products of the model's own sizes, measured before and after. Arithmetic counts the products
that the update cannot do without (linear layers, attention inside the causal triangle, head at trained positions;
backward twice the forward); bytes are those of `traffic`. Share = arithmetic / seconds / peak, by wall clock and by
CPU time. `where` is the profiler's own time of the operations of one more update.

With a peer, first what both compute is compared: in float32 loss and gradient, in bfloat16 each side's
log-probabilities against float32, over several batches of random ids and of documentation strings of the standard
library. A loss or gradient that differs ends the program before anything is timed. Then the two take turns in this
process; medians. Ours is all of `Trainer.update`, the digest of the new weights included.
`TRL compact` is explained in `peer_trl`: CPU seconds of one update, the best of its micro-batches.
Not here: pass or fail by speed.
"""

from __future__ import annotations

import os

# before torch is loaded: threads that spin while they wait take the cores from each other on a shared machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import dataclasses
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from learner_data import PEER_SHAPES, SHAPES, examples, samples_of, text_of

from selfplay.learner.batch import pack
from selfplay.learner.options import Options
from selfplay.learner.passes import collect
from selfplay.learner.scoring import logprobs_of
from selfplay.learner.trainer import Trainer
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.types import Batch, Sample, Update

Parts = Sequence[Sequence[int]]
"""Micro-batches, as positions of samples."""

LOSS_BOUND, GRADIENT_BOUND = 1e-5, 1e-6
REACH = {"shared": 3.0, "skewed": 3.5, "even": 1.0}
MICRO_BATCHES = (8, 4)
"""TRL's candidates, the whole batch first."""


def demonstrated(trainer: Trainer) -> tuple[Sample, ...]:
    """`examples` as samples, to count them."""
    tokenizer = trainer._tokenizer
    assert tokenizer is not None
    encoded = [(tokenizer.encode(e.prompt), (*tokenizer.encode(e.replies[0]), 2)) for e in examples()]
    return tuple(
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


def arithmetic(trainer: Trainer, samples: Sequence[Sample], parts: Parts) -> tuple[float, int, int]:
    """Floating-point operations of one update's products, tokens computed, tokens trained."""
    config: Any = trainer.model.config
    head = config.vocab_size * config.hidden_size
    width = config.num_attention_heads * config.head_dim
    body = sum(p.numel() for n, p in trainer.model.named_parameters() if p.ndim == 2 and "embed" not in n)
    total, computed, trained = 0.0, 0, 0
    for part in parts:
        row = pack(samples, part)
        seen = sum(position + 1 for position in row.positions)
        attention = 2 * seen * width * config.num_hidden_layers
        total += 3 * 2 * (len(row.token_ids) * body + len(row.targets) * head + attention)
        computed += len(row.token_ids)
        trained += len(row.targets)
    return total, computed, trained


def traffic(trainer: Trainer, *, parts: int) -> float:
    """Bytes of parameters, gradients and moments that one update moves.

    For each micro-batch: weights read forward and backward, their gradient written, read, and added in float32. Once:
    AdamW's seven passes, the norm, the clip, the reset and the copy to the compute type.
    """
    numbers = sum(p.numel() for p in trainer.model.parameters())
    size = next(trainer.model.parameters()).element_size()
    return float(numbers * (parts * (4 * size + 8) + 4 * (7 + 1 + 2 + 1 + 1) + size))


def peak(trainer: Trainer) -> tuple[float, float]:
    """Best operations a second, by wall clock and by CPU time, over products of the model's sizes."""
    config: Any = trainer.model.config
    dtype = next(trainer.model.parameters()).dtype
    wall, cpu = 0.0, 0.0
    for rows in (512, 1024, 2048):
        a = torch.randn(rows, config.hidden_size, dtype=dtype)
        b = torch.randn(config.hidden_size, config.intermediate_size, dtype=dtype)
        operations = 8 * 2.0 * rows * config.hidden_size * config.intermediate_size
        for _ in range(3):
            found = timed(lambda a=a, b=b: [a @ b for _ in range(8)])  # type: ignore[misc]
            wall, cpu = max(wall, operations / found[0]), max(cpu, operations / found[1])
    return wall, cpu


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of wall-clock and of CPU seconds."""
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def where(work: Callable[[], object], *, vocabulary: int) -> dict[str, float]:
    """Shares of an update's time by kind of operation; `head` are the products and passes with a vocabulary's width."""
    kinds = {
        "linear": ("aten::mm", "aten::addmm", "aten::linear", "mkldnn"),
        "attention": ("aten::bmm", "aten::_softmax", "aten::masked_fill", "aten::baddbmm", "scaled_dot_product"),
        "optimizer": ("adam", "foreach", "linalg_vector_norm", "aten::zero_"),
        "copies and casts": ("aten::copy_", "aten::cat", "aten::to", "aten::_to_copy", "aten::fill_"),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        work()
    shares: dict[str, float] = dict.fromkeys(["linear", "head", "attention", "optimizer", "copies and casts"], 0.0)
    shares["the rest"] = 0.0
    for event in profile.key_averages(group_by_input_shape=True):
        wide = any(vocabulary in shape for shape in event.input_shapes if isinstance(shape, list))
        kind = next((k for k, names in kinds.items() if any(name in event.key for name in names)), "the rest")
        if wide and kind != "optimizer":
            kind = "head"
        shares[kind] += event.self_cpu_time_total
    total = sum(shares.values())
    return {kind: share / total for kind, share in shares.items()}


def update_of(trainer: Trainer, shape: str) -> tuple[Callable[[], Update], tuple[Sample, ...]]:
    """One update of `shape`, and its samples."""
    if shape == "imitate":
        pairs = examples()
        return (lambda: trainer.imitate(pairs, index=50, total=100)), demonstrated(trainer)
    samples = samples_of(shape)
    batch = Batch(step=0, phase="play", samples=samples, temperature=1.0)
    return (lambda: trainer.update(batch)), samples


def measure(
    trainer: Trainer, shape: str, *, repeats: int, others: Sequence[Callable[[], object]] = ()
) -> dict[str, Any]:
    """One row of the report; `others` are timed in turns with ours."""
    work, samples = update_of(trainer, shape)
    before = peak(trainer)
    parts = work().partition
    operations, computed, trained = arithmetic(trainer, samples, parts)
    turns = [[timed(side) for side in (work, *others)] for _ in range(repeats)]
    after = peak(trainer)
    (wall, cpu), *theirs = [medians(side) for side in zip(*turns, strict=True)]
    best = max(before[0], after[0]), max(before[1], after[1])
    config: Any = trainer.model.config
    return {
        "shape": shape,
        "tokens": computed,
        "trained": trained,
        "seconds": wall,
        "cpu_seconds": cpu,
        "gflop": operations / 1e9,
        "gbytes": traffic(trainer, parts=len(parts)) / 1e9,
        "peak_gflops": best[0] / 1e9,
        "share_of_peak": operations / wall / best[0],
        "share_of_peak_by_cpu": operations / cpu / best[1],
        "tokens_per_second": computed / wall,
        "where": where(work, vocabulary=config.vocab_size),
        "others": theirs,
        "load": os.getloadavg()[0],
    }


def options_of(dtype: Any, *, threads: int, budget: int) -> Options:
    """Rates too small to change what is computed."""
    return Options(lr=1e-6, warmup_lr=1e-5, dtype=dtype, threads=threads, token_budget=budget, role_weights="pooled")


def agree(folder: Path, *, threads: int, budget: int, batches: int) -> None:
    """Compare the two sides on half of the samples of every shape, and print what was found.

    Raises:
        SystemExit: loss or gradient is beyond its bound.
    """
    from peer_trl import Peer, inputs_of

    text = text_of(HFTokenizer(folder))
    drawn = [
        (shape, kind, samples_of(shape, seed=seed, text=ids)[1::2])
        for shape in PEER_SHAPES
        for kind, ids in (("random ids", ()), ("text", text))
        for seed in range(batches)
    ]
    trainer = Trainer.from_folder(folder, options=options_of("float32", threads=threads, budget=budget))
    peer = Peer(folder, bf16=False, samples=8, lr=1e-6)
    for shape in PEER_SHAPES:
        compare_gradients(trainer, peer, samples=samples_of(shape)[1::2], shape=shape)
    # note: the two sides' float32 is a thousand times closer together than either's bfloat16 is to it.
    exact = [scored(trainer, samples) for _, _, samples in drawn]
    del trainer, peer
    trainer = Trainer.from_folder(folder, options=options_of("bfloat16", threads=threads, budget=budget))
    peer = Peer(folder, bf16=True, samples=8, lr=1e-6)
    errors: dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for (shape, kind, samples), reference in zip(drawn, exact, strict=True):
        theirs = torch.cat(peer.logprobs(inputs_of(samples)))
        pair = (scored(trainer, samples) - reference).abs(), (theirs - reference).abs()
        errors.setdefault((shape, kind), []).append(pair)
    for (shape, kind), pairs in errors.items():
        print_errors(f"{shape}, {kind}", pairs)


def scored(trainer: Trainer, samples: Sequence[Sample]) -> torch.Tensor:
    """Our log-probabilities of the trained tokens of all `samples`."""
    batch = Batch(step=0, phase="play", samples=tuple(samples), temperature=1.0)
    work, _ = trainer._play_work(batch, range(len(samples)), None)
    found = logprobs_of(trainer.model, samples, work.parts, temperature=1.0)
    return torch.cat([found[i] for i in range(len(samples))])


def print_errors(name: str, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Mean error of each side over the batches with its standard error, largest error, and the paired difference."""
    means = torch.tensor([[side.mean() for side in pair] for pair in pairs])
    columns = torch.cat([means, means[:, :1] - means[:, 1:]], dim=1)
    mean, error = columns.mean(0), columns.std(0) / len(pairs) ** 0.5
    ours, theirs = (max(float(pair[side].max()) for pair in pairs) for side in (0, 1))
    worse = " (NOT REACHED: ours is further away)" if mean[2] > 2 * error[2] else ""
    print(
        f"| {name} | {mean[0]:.4f} ± {error[0]:.4f} / {ours:.3f} | {mean[1]:.4f} ± {error[1]:.4f} / {theirs:.3f} | "
        f"{mean[2]:+.4f} ± {error[2]:.4f} |{worse}",
        flush=True,
    )


def compare_gradients(trainer: Trainer, peer: Any, *, samples: Sequence[Sample], shape: str) -> None:
    """One float32 pass of each side, with old log-probabilities a little off, so that some ratios are clipped."""
    from peer_trl import inputs_of

    batch = Batch(step=0, phase="play", samples=tuple(samples), temperature=1.0)
    work, _ = trainer._play_work(batch, range(len(samples)), None)
    old = logprobs_of(trainer.model, samples, work.parts, temperature=1.0)
    generator = torch.Generator().manual_seed(0)
    old = {i: logprobs + 0.1 * torch.randn(len(logprobs), generator=generator) for i, logprobs in old.items()}
    ours = collect(dataclasses.replace(work, old=old), trainer._master, room=trainer._room)[0]
    mine = {name: gradient.clone() for name, gradient in trainer._master.gradients.items()}
    trainer._master.zero_gradients()
    peer.micro_batch = 4
    theirs = peer.loss_and_gradient(inputs_of(work.samples, old=old))
    yours = peer.gradients()
    norm = torch.stack([g.norm() for g in yours.values()]).norm().item()
    apart = torch.stack([(mine[name] - yours[name]).norm() for name in yours]).norm().item() / norm
    largest = max(float((mine[name] - yours[name]).abs().max()) for name in yours) / norm
    print(
        f"{shape:8} float32: loss {ours:.7f} and {theirs:.7f}; gradients of norm {norm:.3f}, difference / norm: "
        f"{largest:.1e} at the largest, {apart:.1e} altogether",
        flush=True,
    )
    if abs(ours - theirs) > LOSS_BOUND or largest > GRADIENT_BOUND:
        raise SystemExit(f"{shape}: the two sides do not compute the same update")


def race(folder: Path, *, shapes: Sequence[str], repeats: int, threads: int, budget: int) -> list[dict[str, Any]]:
    """Each shape in bfloat16: ours and TRL in turns; before them one update each of TRL with a compact head."""
    from peer_trl import Peer, inputs_of

    trainer = Trainer.from_folder(folder, options=options_of("bfloat16", threads=threads, budget=budget))
    peer = Peer(folder, bf16=True, samples=8, lr=1e-6)
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        inputs = inputs_of(samples_of(shape))
        peer.compact = True
        compact = min(peer.fastest(inputs, sizes=MICRO_BATCHES).values())
        peer.compact = False
        theirs: Callable[[], object] = lambda inputs=inputs: peer.step(inputs)  # type: ignore[misc]  # noqa: E731
        row = measure(trainer, shape, repeats=repeats, others=[theirs])
        rows.append(row | {"micro_batch": peer.micro_batch, "compact": compact})
        print_race(rows[-1])
    return rows


def print_race(row: dict[str, Any]) -> None:
    """A Markdown row: seconds by the clock (of CPU time), and how many times ours is faster."""
    wall, cpu = row["others"][0]
    ours = row["seconds"], row["cpu_seconds"]
    print(
        f"| {row['shape']} | {ours[0]:.2f} ({ours[1]:.2f}) | {wall:.2f} ({cpu:.2f}) | ({row['compact']:.2f}) | "
        f"{wall / ours[0]:.2f} | {cpu / ours[1]:.2f} | {row['compact'] / ours[1]:.2f} | {REACH[row['shape']]} | "
        f"{row['micro_batch']} | {row['load']:.0f} |",
        flush=True,
    )


def print_shares(rows: Sequence[dict[str, Any]]) -> None:
    """Arithmetic, bytes, and where the time went."""
    print("shape      tokens  trained       s   cpu s   GFLOP    GB  peak  of it by cpu")
    for row in rows:
        print(
            f"{row['shape']:9}{row['tokens']:>8}{row['trained']:>9}{row['seconds']:>8.2f}{row['cpu_seconds']:>8.2f}"
            f"{row['gflop']:>8.0f}{row['gbytes']:>6.1f}{row['peak_gflops']:>6.0f}{row['share_of_peak']:>7.2f}"
            f"{row['share_of_peak_by_cpu']:>7.2f}"
        )
        print("    " + ", ".join(f"{kind} {share:.0%}" for kind, share in row["where"].items()))


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", choices=["trl"])
    parser.add_argument("--no-check", action="store_true", help="with a peer: time only")
    parser.add_argument("--no-race", action="store_true", help="with a peer: compare only")
    parser.add_argument("--batches", type=int, default=6, help="with a peer: of each shape and kind, for the errors")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    limits = {"threads": chosen.threads, "budget": chosen.budget}
    if chosen.peer:
        if not chosen.no_check:
            agree(chosen.model, batches=chosen.batches, **limits)
        if chosen.no_race:
            return
        print("| shape | ours, s (CPU) | TRL | TRL compact | ratio | by CPU | compact | reach | micro-batch | load |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        rows = race(chosen.model, shapes=chosen.shape or PEER_SHAPES, repeats=chosen.repeats, **limits)
    else:
        options = options_of(chosen.dtype, **limits)
        trainer = Trainer.from_folder(chosen.model, options=options, tokenizer=HFTokenizer(chosen.model))
        print(f"digest of the weights: {timed(trainer.weights_digest)[0]:.2f} s; {trainer.fingerprint}")
        rows = [measure(trainer, shape, repeats=chosen.repeats) for shape in chosen.shape or SHAPES]
    if chosen.json:
        print(json.dumps(rows))
    else:
        print_shares(rows)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB; {os.getloadavg()} load")


if __name__ == "__main__":
    main()
