"""Tokens a second of the local sampler and of vLLM's CPU build: the same prompts, lengths, weights and threads.

    python tests/bench/sampler_vllm.py MODEL_FOLDER PYTHON_WITH_VLLM [--repeats 3] [--rows 32] [--threads 2]

The two shapes of `sampler.py`, in bfloat16, both sides as a run uses them: the local policy in this process, the vllm
policy with its engine in a process of its own, which is started before anything is timed. The sides take turns, and
the medians of wall-clock seconds are reported; then one hand-over of all weights, with the comparison of digests. vLLM
keeps prompts from one repeat to the next unless the weights change, so they change before each. Not here: pass or fail.
"""

from __future__ import annotations

import os

# before torch is loaded: threads that spin while they wait take the cores from each other on a shared machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from sampler import Endless, requests, run_ours
from transformers import AutoModelForCausalLM

from selfplay.policy.handover import Handover, Outgoing
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.policy.vllm import VLLMPolicy
from selfplay.policy.vllm_setup import Options


def main() -> None:
    """Print a Markdown row a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("python")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model: Any = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.bfloat16).eval()
    tokenizer = Endless(HFTokenizer(options.folder))
    version = [0]
    with ThreadPoolExecutor(1) as thread, asyncio.Runner() as runner:
        sent = Outgoing(tensors=lambda: dict(model.named_parameters()), config_json=model.config.to_json_string())
        policy = VLLMPolicy(
            Handover(sent),
            tokenizer,
            version=lambda: version[0],
            executor=thread,
            context=2048,
            vocabulary=model.config.vocab_size,
            max_rows=options.rows,
            threads=options.threads,
            options=Options(python=options.python),
        )

        async def sample(work: Any) -> None:
            replies = await asyncio.gather(*[policy.sample(request) for request in work])
            assert all(len(r.token_ids) == w.sampling.max_tokens for r, w in zip(replies, work, strict=True))

        def handed(work: Any) -> float:
            """Seconds of a hand-over, with the first token behind it."""
            version[0] += 1
            began = time.perf_counter()
            runner.run(sample(work))
            return time.perf_counter() - began

        print("| shape | tokens | local, tokens/s | vLLM, tokens/s | vLLM / local | load |\n|---|--:|--:|--:|--:|--:|")
        one = [requests("equal", rows=options.rows, vocabulary=model.config.vocab_size)[0]]
        began = time.perf_counter()
        handed(one)
        started = time.perf_counter() - began
        moves = []
        for shape in ("equal", "skewed"):
            work = requests(shape, rows=options.rows, vocabulary=model.config.vocab_size)
            tokens = sum(w.sampling.max_tokens for w in work)
            seconds: dict[str, list[float]] = {"local": [], "vllm": []}
            for _ in range(options.repeats + 1):
                began = time.perf_counter()
                run_ours(model, tokenizer, work, rows=options.rows)
                seconds["local"].append(time.perf_counter() - began)
                moves.append(handed(one))
                began = time.perf_counter()
                runner.run(sample(work))
                seconds["vllm"].append(time.perf_counter() - began)
            local, vllm = (tokens / statistics.median(seconds[side][1:]) for side in ("local", "vllm"))
            load = os.getloadavg()[0]
            print(f"| {shape} | {tokens} | {local:.0f} | {vllm:.0f} | {vllm / local:.2f} | {load:.1f} |", flush=True)
        print(f"start and first reply: {started:.1f} s; weights and a reply of 48: {statistics.median(moves):.2f} s")
        runner.run(policy.aclose())


if __name__ == "__main__":
    main()
