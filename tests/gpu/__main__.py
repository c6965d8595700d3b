"""Does this project work on your card? `python -m tests.gpu [--out FILE]`, in less than ten minutes.

Needs torch and transformers, and this repository as the working folder; vLLM is tried where it is installed. Writes one
JSON file: the machine, each check with what it saw, throughput. `--cpu` does the same with a tiny model on the
processor, which shows that the checks themselves run.

Exit codes: 0 all checks that could be made hold, 1 one did not, 3 there is no card.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.gpu.checks import CHECKS, LARGE, TINY, Bench, Failed, Skipped

SECONDS = 570.0
"""Checks that have not begun by then are skipped."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="a tiny model on the processor")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the answer [default: gpu.json]")
    parser.add_argument("--vllm-python", default="", help="interpreter of the environment that has vLLM")
    parser.add_argument("--only", default="", help=f"some of: {', '.join(name for name, _ in CHECKS)}, with commas")
    asked = parser.parse_args(words)
    if not asked.cpu and not torch.cuda.is_available():
        print("there is no card that torch can use here; --cpu tries a tiny model on the processor", file=sys.stderr)
        return 3
    device = torch.device("cpu" if asked.cpu else "cuda:0")
    bench = Bench(device=device, size=TINY if asked.cpu else LARGE, vllm_python=asked.vllm_python)
    only = [name for name in asked.only.split(",") if name]
    rows = checked(bench, only=only or [name for name, _ in CHECKS])
    answer = {"schema": 1, "machine": machine(device), "checks": rows, "throughput": bench.throughput}
    asked.out.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    print(f"written to {asked.out}", file=sys.stderr)
    return 1 if any(row["verdict"] == "failed" for row in rows) else 0


def checked(bench: Bench, *, only: Sequence[str]) -> list[dict[str, Any]]:
    """Every check's row; none ends the others."""
    began, rows = time.monotonic(), []
    for name, check in CHECKS:
        if name not in only:
            continue
        started = time.monotonic()
        verdict, what = "skipped", "the time was up"
        if started - began < SECONDS:
            verdict, what = _tried(name, check, bench)
        seconds = round(time.monotonic() - started, 2)
        rows.append({"name": name, "verdict": verdict, "what": what, "seconds": seconds})
        print(f"{verdict:<8} {name:<11} {what} ({seconds} s)", file=sys.stderr, flush=True)
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def _tried(name: str, check: Any, bench: Bench) -> tuple[str, str]:
    try:
        return "ok", check(bench)
    except Skipped as skipped:
        return "skipped", str(skipped)
    except Failed as failed:
        return "failed", str(failed)
    # note: whatever it is, it is the answer; the other checks are tried all the same.
    except Exception as error:  # noqa: BLE001
        return "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def machine(device: torch.device) -> dict[str, Any]:
    """What it ran on."""
    import transformers

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device.type,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"card": properties.name, "memory_mb": round(properties.total_memory / 1e6)}
        found |= {"capability": f"{properties.major}.{properties.minor}", "cuda": torch.version.cuda}
    return found


if __name__ == "__main__":
    sys.exit(main())
