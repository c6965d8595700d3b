"""What screens cost: `--help` over an empty Python, and `status`, `inspect` and a refresh of `watch` on a long run.

    python tests/bench/screens.py [--trajectories N] [--folder DIR | --run RUN]

The run is `ledger_data`'s: steps of 288 trajectories, appended through the ledger and, beyond `APPENDED`, copied by SQL
under other ids. Whole processes are timed in turns with `python -c pass`, so that both see the same load; a refresh is
timed inside one process, from the look at the ledger to the characters for the terminal, as `selfplay watch` makes it
again and again. The first one is given apart: it reads what later ones keep. Reports; does not gate.

Not here: questions to the ledger alone (`ledger.py`), drawing on a real terminal.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import ledger_data as data
from rich.console import Console, RenderableType

from selfplay.alarms import ALARMS
from selfplay.cli import frontier
from selfplay.cli.status import look, view_of
from selfplay.cli.watch import BACK, page_of
from selfplay.ledger import Ledger, Reader
from selfplay.views.frontier import FrontierView
from selfplay.views.status import run_screen
from selfplay.views.watch import Gatherer
from selfplay.views.watch_screen import screen

APPENDED = 20_000
"""Trajectories that go in through the ledger before the file is grown by copies."""
ROUNDS = 7
"""How often everything is timed; medians are printed."""
WIDTH, HEIGHT = 100, 40


def made(folder: Path, num_trajectories: int) -> int:
    """A run in `folder` of about so many trajectories; how many it has."""
    with Ledger.create(folder, config_digest=data.CONFIG, config={}, seed=0, game="code") as ledger:
        ledger.append(*(data.seed_of(number) for number in range(data.SEEDS))).result()
        for step in range(min(num_trajectories, APPENDED) // data.PER_STEP):
            records, groups, update = data.step_records(step)
            for one in records:
                ledger.append(one)
            ledger.flush()
            ledger.close_step(step=step, groups=groups, update=update, stage_seconds={}, counts={})
        ledger.end_launch("done")
    with Ledger.read(folder) as reader:
        there = reader.open_step() * data.PER_STEP
    return data.multiply(folder, num_trajectories) if num_trajectories >= there + data.PER_STEP else there


def timed(do: Callable[[], object]) -> list[float]:
    """Milliseconds of each of `ROUNDS` calls."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        do()
        found.append(1e3 * (time.perf_counter() - began))
    return found


def in_turns(commands: Sequence[Sequence[str]]) -> None:
    """Whole processes, in turns with a Python that does nothing: medians, and what each takes beyond that."""
    found: dict[tuple[str, ...], list[float]] = {(): [], **{tuple(words): [] for words in commands}}
    for _ in range(ROUNDS):
        for words, times in found.items():
            began = time.perf_counter()
            arguments = ["-m", "selfplay", *words] if words else ["-c", "pass"]
            done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
            times.append(1e3 * (time.perf_counter() - began))
            if done.returncode:
                raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    bare = median(found.pop(()))
    print(f"  {bare:6.0f} ms  python -c pass")
    for words, times in found.items():
        name = " ".join("RUN" if "/" in word else word for word in words)
        print(f"  {median(times):6.0f} ms  selfplay {name}: {median(times) - bare:.0f} ms over an empty Python")


def drawn(what: RenderableType) -> str:
    """The characters that a terminal would get."""
    console = Console(file=io.StringIO(), width=WIDTH, height=HEIGHT, force_terminal=True, color_system="truecolor")
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def screens(folder: Path, proposal: str) -> None:
    """Every screen inside this process: the first time, and the median of the others."""
    found: dict[str, list[float]] = {}
    found["status RUN"] = timed(lambda: drawn(run_screen(look(folder, whole=True), now=time.time())))
    with Ledger.read(folder) as reader:
        found["inspect RUN ID (reach < 200)"] = timed(lambda: drawn(page_of(reader, proposal)))
        found["watch, all but the frontier (reach < 200)"] = timed(_refresh(reader, known=None))
        began = time.perf_counter()
        view = _frontier(reader)
        found["the frontier, once a step, on a thread of its own"] = [1e3 * (time.perf_counter() - began)]
        found["watch, the frontier known (reach < 200)"] = timed(_refresh(reader, known=view))
    for name, (first, *others) in found.items():
        print(f"  {name}: first {first:.0f} ms" + (f", median {median(others):.0f} ms" if others else ""))


def _refresh(reader: Reader, *, known: FrontierView | None) -> Callable[[], object]:
    fixes = {name: alarm.fix for name, alarm in ALARMS.items()}
    gatherer = Gatherer(reader, draw=lambda last: (known, False), fixes=fixes)

    def refresh() -> str:
        watched = gatherer.look(view_of(reader, reader.folder))
        return drawn(screen(watched, now=time.time(), width=WIDTH, height=HEIGHT))

    return refresh


def _frontier(reader: Reader) -> FrontierView:
    last = reader.last_closed_step()
    return frontier.view_of(reader, last, at=[max(0, last - BACK), last])


def main() -> None:
    """Make the run where none is given, and time what looks at it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=APPENDED)
    parser.add_argument("--folder", type=Path, default=None, help="where the run goes [default: the temporary folder]")
    parser.add_argument("--run", type=Path, default=None, help="a run of these that is there already")
    asked = parser.parse_args()
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="selfplay-bench-", dir=asked.folder) as aside:
        folder = asked.run or Path(aside) / "runs" / "long"
        if asked.run is None:
            print(f"{made(folder, asked.trajectories):,} trajectories")
        with Ledger.read(folder) as reader:
            proposal = reader.trajectories(reader.open_step() // 2, "propose")[3].id
        name = str(folder.resolve())
        in_turns(
            [
                ["--help"],
                ["status", name],
                ["status", name, "--json"],
                ["inspect", name, proposal],
                ["inspect", name],
                ["watch", name, "--once"],
            ]
        )
        screens(folder, proposal)


if __name__ == "__main__":
    main()
