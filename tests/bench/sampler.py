"""Tokens a second of the local sampler against `transformers` generate, on the same prompts and reply lengths.

    python tests/bench/sampler.py MODEL_FOLDER [--repeats 3] [--rows 32] [--threads 2] [--memory] [--where] [--json]

Two shapes, both in bfloat16, temperature 0.8, no top-k and no end of sequence, so that the lengths are equal:
`equal` has distinct prompts of 128 tokens and 48 tokens a reply; `skewed` has groups of 8 that share a prompt
of 64 to 256 tokens, and replies of 8 to 128 tokens. generate ends each row at its own length (a stopping
criterion) and decodes until the last row ends; both are counted by the tokens that were asked for. The two
sides take turns, in one process, and the medians of wall-clock and CPU seconds are reported; peak memory, where asked
for, comes from a process each.

`--where` accounts for ours, apart for prefill and decoding: arithmetic of the products that cannot be done without
(linear layers, attention, head), bytes that must be read (all weights once a forward, keys and values once a step), the
rates at which that goes, beside those of the machine (a product of 1,024 rows with one layer's largest weight, a
copy of 256 MB), and the profiler's own time of some forwards. Not here: pass or fail.
"""

from __future__ import annotations

import os

# before torch is loaded: threads that spin while they wait take the cores from each other on a shared machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from selfplay.policy import Request
from selfplay.policy.engine import Engine, Row
from selfplay.policy.local import LocalPolicy
from selfplay.policy.prefixes import PIECE
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.types import Sampling

TEMPERATURE = 0.8
REACH = {"equal": 1.15, "skewed": 2.0}


class Endless:
    """A tokenizer without an end of sequence: every reply has the length that was asked for."""

    def __init__(self, inner: HFTokenizer) -> None:
        self.inner = inner
        self.eos_ids: frozenset[int] = frozenset()
        self.encode, self.encode_chat, self.decode = inner.encode, inner.encode_chat, inner.decode


class Lengths(StoppingCriteria):
    """Ends row i after `lengths[i]` new tokens."""

    def __init__(self, lengths: Sequence[int], *, prompt: int) -> None:
        self.ends = torch.tensor(lengths) + prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        return input_ids.shape[1] >= self.ends


def requests(shape: str, *, rows: int, vocabulary: int) -> list[Request]:
    """The work of one shape; random ids, the same for both sides."""
    rng = random.Random(0)

    def prompt(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, vocabulary) for _ in range(length))

    if shape == "equal":
        prompts, lengths = [prompt(128) for _ in range(rows)], [48] * rows
    else:
        prompts = [p for _ in range(rows // 8) for p in [prompt(rng.randrange(64, 257))] * 8]
        lengths = [min(128, int(8 * 2 ** rng.expovariate(1.0))) for _ in prompts]
    return [
        Request(prompt_ids=p, sampling=Sampling(temperature=TEMPERATURE, max_tokens=n), seed=i)
        for i, (p, n) in enumerate(zip(prompts, lengths, strict=True))
    ]


def run_ours(model: torch.nn.Module, tokenizer: Endless, work: Sequence[Request], *, rows: int) -> None:
    """All requests through the local policy."""

    async def play() -> None:
        with ThreadPoolExecutor(1) as executor:
            policy = LocalPolicy(model, tokenizer, version=lambda: 0, executor=executor, max_rows=rows)
            replies = await asyncio.gather(*[policy.sample(request) for request in work])
            assert all(len(r.token_ids) == w.sampling.max_tokens for r, w in zip(replies, work, strict=True))
            await policy.aclose()

    asyncio.run(play())


def run_theirs(model: torch.nn.Module, work: Sequence[Request]) -> None:
    """All requests in one generate call, padded on the left."""
    longest = max(len(w.prompt_ids) for w in work)
    ids = torch.tensor([[0] * (longest - len(w.prompt_ids)) + list(w.prompt_ids) for w in work])
    mask = torch.tensor([[0] * (longest - len(w.prompt_ids)) + [1] * len(w.prompt_ids) for w in work])
    lengths = [w.sampling.max_tokens for w in work]
    with torch.inference_mode():
        model.generate(  # type: ignore[operator]
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            eos_token_id=None,
            pad_token_id=0,
            max_new_tokens=max(lengths),
            stopping_criteria=StoppingCriteriaList([Lengths(lengths, prompt=longest)]),
        )


def resident_peak() -> float:
    """Most memory resident in this process since the record was reset, in MiB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(folder: Path, *, shape: str, sides: Sequence[str], repeats: int, rows: int) -> dict[str, dict[str, float]]:
    """Median tokens a second and CPU seconds of each side, in turns, after one warm-up each."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    tokenizer = Endless(HFTokenizer(folder))
    work = requests(shape, rows=rows, vocabulary=model.config.vocab_size)
    # 5 sets the kernel's record of the peak to the present size: loading the model is not part of it
    Path("/proc/self/clear_refs").write_text("5")
    base = resident_peak()
    tokens = sum(w.sampling.max_tokens for w in work)
    wall: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats + 1):
        for side in sides:
            started, started_cpu = time.perf_counter(), time.process_time()
            if side == "ours":
                run_ours(model, tokenizer, work, rows=rows)
            else:
                run_theirs(model, work)
            wall[side].append(time.perf_counter() - started)
            cpu[side].append(time.process_time() - started_cpu)
    peak = resident_peak()
    return {
        side: {
            "tokens": tokens,
            "tokens_per_second": tokens / statistics.median(wall[side][1:] or wall[side]),
            "seconds": statistics.median(wall[side][1:] or wall[side]),
            "cpu_seconds": statistics.median(cpu[side][1:] or cpu[side]),
            "peak_mib_over_model": peak - base,
        }
        for side in sides
    }


def needs(config: Any, work: Sequence[Request], *, linear: int, prefill: bool) -> tuple[float, float, int]:
    """(operations, bytes, forwards) of one of the two halves; `linear`: parameters of the layers' products."""
    lengths = {w.prompt_ids: len(w.prompt_ids) for w in work}.values()
    head = config.vocab_size * config.hidden_size
    width = config.num_hidden_layers * config.hidden_size // config.num_attention_heads
    if prefill:
        tokens, logits, forwards = sum(lengths), len(lengths), sum(-(-n // PIECE) for n in lengths)
        seen = sum(n * (n + 1) // 2 for n in lengths)
        read = 0
    else:
        tokens = logits = sum(w.sampling.max_tokens - 1 for w in work)
        forwards = max(w.sampling.max_tokens for w in work) - 1
        read = seen = sum(len(w.prompt_ids) + i for w in work for i in range(1, w.sampling.max_tokens))
    operations = 2 * (linear * tokens + head * logits) + 4 * seen * width * config.num_attention_heads
    bytes_ = 2 * ((linear + head) * forwards + 2 * read * width * config.num_key_value_heads)
    return float(operations), float(bytes_), forwards


def rates(model: Any) -> tuple[float, float]:
    """Operations and bytes (read and written) a CPU second of this machine, the best of ten."""
    weight = max((m.weight for m in model.model.modules() if isinstance(m, torch.nn.Linear)), key=torch.Tensor.numel)
    inputs, source = weight.new_ones(1024, weight.shape[1]), torch.ones(1 << 26)
    target = torch.empty_like(source)

    def best(run: Callable[[], object]) -> float:
        return min(timed(run) for _ in range(10))

    operations = 2 * 1024 * weight.numel() / best(lambda: torch.nn.functional.linear(inputs, weight))
    return operations, 2 * source.nbytes / best(lambda: target.copy_(source))


def timed(run: Callable[[], object]) -> float:
    """CPU seconds."""
    started = time.process_time()
    run()
    return time.process_time() - started


def shares(run: Callable[[], object], *, vocabulary: int) -> str:
    """The profiler's own time by kind of operation, in words."""
    kinds = {
        "attention": ("aten::bmm", "aten::_softmax", "aten::baddbmm", "flash_attention", "aten::index_copy_"),
        "linear": ("aten::addmm", "aten::mm", "aten::linear", "mkldnn"),
        "copies and casts": ("aten::copy_", "aten::cat", "aten::to", "aten::_to_copy", "aten::clone"),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        run()
    spent: dict[str, float] = {}
    for event in profile.key_averages(group_by_input_shape=True):
        kind = next((k for k, names in kinds.items() if any(name in event.key for name in names)), "the rest")
        if any(isinstance(s, list) and s and max(s) >= vocabulary for s in event.input_shapes):
            kind = "head and draw"
        spent[kind] = spent.get(kind, 0.0) + event.self_cpu_time_total
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {value / sum(spent.values()):.0%}" for kind, value in ranked)


@torch.inference_mode()
def account(folder: Path, *, shape: str, rows: int) -> None:
    """Print where ours spends its CPU seconds."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    work = requests(shape, rows=rows, vocabulary=model.config.vocab_size)
    linear = sum(m.weight.numel() for m in model.model.modules() if isinstance(m, torch.nn.Linear))
    engine = Engine(model, Endless(HFTokenizer(folder)), max_rows=rows, kv_tokens=32_768)

    def admit(some: Sequence[Request], *, version: int) -> None:
        engine.admit([Row(request=r, context=8192) for r in some], version=version)

    def decode(steps: int) -> None:
        while engine.rows and steps:
            engine.step()
            steps -= 1

    machine = rates(model)
    admit(work, version=0)
    decode(-1)
    spent = {"prefill": timed(lambda: admit(work, version=1)), "decoding": timed(lambda: decode(-1))}
    seen = {"prefill": shares(lambda: admit(work, version=2), vocabulary=model.config.vocab_size)}
    seen["decoding"] = shares(lambda: decode(6), vocabulary=model.config.vocab_size)
    for half, seconds in spent.items():
        operations, bytes_, forwards = needs(model.config, work, linear=linear, prefill=half == "prefill")
        print(
            f"{shape}, {half}: {seconds:.2f} CPU s, {forwards} forwards; {operations / 1e9:.0f} GFLOP at "
            f"{operations / seconds / 1e9:.0f} of {machine[0] / 1e9:.0f} GFLOP/s; {bytes_ / 1e9:.1f} GB at "
            f"{bytes_ / seconds / 1e9:.1f} of {machine[1] / 1e9:.1f} GB/s; {seen[half]}",
            flush=True,
        )


def print_row(shape: str, found: dict[str, dict[str, float]]) -> None:
    """One shape: seconds by the clock (of CPU time), and how many times ours is faster."""
    cells = [f"{row['seconds']:.2f} ({row['cpu_seconds']:.2f})" for row in found.values()]
    ratios = ["", ""]
    if len(found) == 2:
        ratios = [f"{found['theirs'][kind] / found['ours'][kind]:.2f}" for kind in ("seconds", "cpu_seconds")]
    first = next(iter(found.values()))
    print(
        f"| {shape} | {first['tokens']:.0f} | {' | '.join(cells)} | {' | '.join(ratios)} | {REACH[shape]} | "
        f"{first['tokens_per_second']:.0f} | {os.getloadavg()[0]:.1f} |",
        flush=True,
    )


def main() -> None:
    """Print a Markdown row a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--shape", choices=("equal", "skewed"), action="append")
    parser.add_argument("--side", choices=("ours", "theirs"), action="append")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true", help="peak memory as well, from a process a side")
    parser.add_argument("--where", action="store_true", help="only account for ours")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sides = options.side or ["ours", "theirs"]
    if options.where:
        for shape in options.shape or ["equal", "skewed"]:
            account(options.folder, shape=shape, rows=options.rows)
        return
    report: dict[str, dict[str, dict[str, float]]] = {}
    if not options.json:
        print("| shape | tokens | ours, s (cpu) | generate, s (cpu) | ratio | by cpu | to reach | tokens/s | load |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for shape in options.shape or ["equal", "skewed"]:
        found = measure(options.folder, shape=shape, sides=sides, repeats=options.repeats, rows=options.rows)
        for side in sides if options.memory else ():
            command = [sys.executable, __file__, str(options.folder), "--repeats", "0", "--json"]
            command += ["--rows", str(options.rows), "--shape", shape, "--side", side]
            command += ["--threads", str(options.threads)]
            alone = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[side]["peak_mib_over_model"] = json.loads(alone)[shape][side]["peak_mib_over_model"]
        report[shape] = found
        if not options.json:
            print_row(shape, found)
    if options.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
