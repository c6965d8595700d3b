"""The long form: hundreds of kills, chain by chain, two chains at a time; its table is kept in `README.md`.

    python tests/crash/long.py --toy 500
    python tests/crash/long.py --code 100

`--toy`: the toy game, each chain with a seed of its own, half of them with a divergence from a reference. `--code`:
chains through a two-seed, three-step run of the code game with SmolLM2-135M, its warm-up taken from the cache (the
first time it is made, which takes minutes). `--scripted SANDBOX N`: the code game with replies from a table.

Each chain appends a line to `long.jsonl` in the working folder (`--to`), and the same command goes on behind the last
one. Exit code 1 where a chain differs.

Not here: single points inside a commit or a save (`test_kills.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from compared import differences
from harness import Chain, Played, Setup, kill_at_random, write_package

TOY_STEPS = 60
TOY_WINDOW_SECONDS = 0.9
"""Of play between two kills, at most: about 25 kills a chain."""
CODE_KILLS = 100
"""A chain of the real model: this many kills, then to the end."""

Line = dict[str, Any]


def toy(number: int, folder: Path) -> Line:
    """One chain of the toy game."""
    sets = ("learner.kl=0.02", "run.keep_saves=1") if number % 2 else ()
    return played(Setup.toy(*sets, steps=TOY_STEPS, seed=number), folder, number=number, window=TOY_WINDOW_SECONDS)


def code(number: int, folder: Path, *, kills: int, sandbox: str) -> Line:
    """One chain of the code game with the real model; chains differ in their moments alone, to share a warm-up."""
    words = ("quickstart", "--steps", "3", "--sandbox", sandbox)
    sets = ("curriculum.seeds=2", "run.save_every=1")
    setup = Setup(words=(*words, *(word for text in sets for word in ("-s", text))), sandbox=sandbox)
    return played(setup, folder, number=number, window=None, kills=kills)


def scripted(number: int, folder: Path, *, kills: int, sandbox: str) -> Line:
    """One chain of the code game with replies from a table."""
    package = write_package(folder / "tiny-1.0")
    setup = Setup.code(package, f"run.seed={number}", sandbox=sandbox, steps=4)
    return played(setup, folder, number=number, window=None, kills=kills, cache=folder / "cache")


def played(
    setup: Setup, folder: Path, *, number: int, window: float | None, kills: int = 10_000, cache: Path | None = None
) -> Line:
    """The run without interruption, the chain, and how they differ.

    `window` of play between two kills; None: so that `kills` of them spread over the run.
    """
    began = time.monotonic()
    if cache is None and "quickstart" in setup.words and number == 0:
        # note: whoever makes the warm-up records its dev plays too; both runs below take it from the cache.
        Played.by(setup, folder, name="warm", cache=cache)
    whole = Played.by(setup, folder, cache=cache)
    chain = Chain(setup=setup, runs=folder, name="chain", cache=cache)
    share = window if window is not None else 2.5 * whole.seconds / kills
    done = kill_at_random(chain, whole, rng=random.Random(number), window=share, most=kills)
    found = differences(chain, whole.folder)
    return {
        "chain": number,
        "kills": done,
        "differences": found,
        "where": dict(chain.killed),
        "seconds": round(time.monotonic() - began, 1),
    }


def table(lines: list[Line], *, title: str) -> str:
    """The lines as Markdown."""
    where: Counter[str] = Counter()
    for line in lines:
        where.update(line["where"])
    kills = sum(line["kills"] for line in lines)
    equal = sum(line["kills"] for line in lines if not line["differences"])
    rows = [
        f"{title}: {equal} of {kills} kills in chains that ended equal; "
        f"{sum(not line['differences'] for line in lines)} of {len(lines)} chains, "
        f"{sum(line['seconds'] for line in lines) / max(1, kills):.1f} s a kill in one chain\n",
        "| what the run was doing | kills |",
        "|---|--:|",
        *(f"| {doing} | {number} |" for doing, number in where.most_common()),
    ]
    rows += [f"chain {line['chain']}: {difference}" for line in lines for difference in line["differences"]]
    return "\n".join(rows)


def main() -> int:
    """Play chains until the kills are enough, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", type=int, default=0, metavar="KILLS")
    parser.add_argument("--code", type=int, default=0, metavar="KILLS")
    parser.add_argument("--scripted", type=int, default=0, metavar="KILLS")
    parser.add_argument("--sandbox", default="bubblewrap", choices=("bubblewrap", "docker", "local"))
    parser.add_argument("--chains", type=int, default=2, help="at a time")
    parser.add_argument("--to", type=Path, default=Path(tempfile.gettempdir()) / f"selfplay-crash-{os.getuid()}")
    asked = parser.parse_args()
    good = True
    for kind, wanted in (("toy", asked.toy), ("code", asked.code), ("scripted", asked.scripted)):
        if wanted:
            name = kind if kind == "toy" else f"{kind}-{asked.sandbox}"
            lines = chains(kind, wanted, to=asked.to / name, at_once=asked.chains, sandbox=asked.sandbox)
            print(table(lines, title=f"{name}, {wanted} asked"), flush=True)
            good = good and not any(line["differences"] for line in lines)
    return 0 if good else 1


def chains(kind: str, wanted: int, *, to: Path, at_once: int, sandbox: str) -> list[Line]:
    """Chains, `at_once` at a time, until `wanted` kills are recorded in `to/long.jsonl`."""
    to.mkdir(parents=True, exist_ok=True)
    record = to / "long.jsonl"
    lines: list[Line] = [json.loads(text) for text in record.read_text().splitlines()] if record.exists() else []
    number = max((line["chain"] for line in lines), default=-1) + 1
    # note: the real model computes on every core, and its chains would share a cache that is being made.
    at_once = 1 if kind == "code" else at_once
    running: set[Future[Line]] = set()
    with ThreadPoolExecutor(at_once) as pool:
        while running or _kills(lines) < wanted:
            while len(running) < at_once and _kills(lines) < wanted:
                most = min(CODE_KILLS, wanted - _kills(lines))
                running.add(pool.submit(_one, kind, number, to / f"chain_{number}", kills=most, sandbox=sandbox))
                number += 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                line = future.result()
                lines.append(line)
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                verdict = "equal" if not line["differences"] else f"DIFFERENT {line['differences']}"
                print(f"{_kills(lines)}/{wanted} kills; chain {line['chain']}: {line['kills']}, {verdict}", flush=True)
    return lines


def _one(kind: str, number: int, folder: Path, *, kills: int, sandbox: str) -> Line:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if kind == "toy":
        line = toy(number, folder)
    elif kind == "code":
        line = code(number, folder, kills=kills, sandbox=sandbox)
    else:
        line = scripted(number, folder, kills=kills, sandbox=sandbox)
    if not line["differences"]:
        shutil.rmtree(folder)
    return line


def _kills(lines: list[Line]) -> int:
    return sum(line["kills"] for line in lines)


if __name__ == "__main__":
    sys.exit(main())
