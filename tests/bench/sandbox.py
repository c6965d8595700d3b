"""What sandboxes cost beside what the machine costs anyway: a sandbox's life, repeats, distinct candidates.

    python tests/bench/sandbox.py [docker] [bubblewrap] [local] [--seconds 60] [--repeats 40] [--rounds 15]
    python tests/bench/sandbox.py --short

Three tables, never merged into one claim: the operations of a sandbox's life; repeats of *one* candidate in
one sandbox, beside fork + preloaded pytest on an empty test + the test's own time, all measured in that
sandbox; and *distinct* candidates for some seconds, a fresh sandbox each, refills included. The package is
toolz with its own tests, surveyed first (cached). Rows of several backends are measured in turns. Reports,
gates nothing. A short run (some seconds) shows that all of it works, not how fast it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

from floors import FLOOR, FOLDER, FOLDER_TEST

from selfplay.cache import cache_folder
from selfplay.games.code import edits
from selfplay.games.code.bugs import changed, target_of, why_not_loadable
from selfplay.games.code.mutate import mutations
from selfplay.games.code.repeats import repeats
from selfplay.games.code.source import fetch
from selfplay.games.code.survey import Function, Rules, Survey, survey
from selfplay.games.code.verify import Budget, Change, Ended, Verifier, variables
from selfplay.sandbox import SandboxProvider, SandboxSpec
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.recipe import load_recipe
from selfplay.sandbox.select import preflight, provider_of
from selfplay.types import draw

SOURCE = "pypi:toolz==1.2.0"
REPEATED = "toolz/itertoolz.py::groupby"
"""The function whose real tests are repeated."""
BUDGET = Budget(cpu_seconds=1.5, seconds=20.0)
"""As the code game's for a quick function (`opened.Settings`)."""


def milliseconds(values: Sequence[float]) -> str:
    """Median and smallest."""
    if not values:
        return "-"
    return f"{statistics.median(values) * 1e3:8.1f} (min {min(values) * 1e3:.1f})"


def show(what: str, found: str) -> None:
    """One row."""
    print(f"{what:44} {found}")


def daemon_seconds() -> float | None:
    """Processor seconds of the Docker engine so far; None where it cannot be read."""
    total, found = 0.0, False
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip() in ("dockerd", "containerd"):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                total, found = total + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), True
    return total if found else None


@contextlib.asynccontextmanager
async def opened(names: Sequence[str]) -> AsyncIterator[tuple[dict[str, Verifier], Survey]]:
    """A verifier for each backend on the surveyed package."""
    cache = cache_folder()
    repository = fetch(SOURCE, cache=cache)
    verifiers: dict[str, Verifier] = {}
    try:
        for name in names:
            provider: SandboxProvider = provider_of(name, load_recipe())
            verifiers[name] = Verifier(repository, provider=provider, workers=os.cpu_count() or 1)
            found = await survey(verifiers[name], rules=Rules(), cache=cache)
        yield verifiers, found
    finally:
        for verifier in verifiers.values():
            await verifier.aclose()
            await verifier.provider.aclose()


async def operations(verifiers: Mapping[str, Verifier], *, rounds: int) -> None:
    """Each operation of a sandbox's life, in turns."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for what, seconds in floors():
            taken["floor", what].append(seconds)
        for name, verifier in verifiers.items():
            async for what, seconds in life(verifier):
                taken[name, what].append(seconds)
    print(f"\n## Operations, ms: median of {rounds}\n")
    for (name, what), seen in taken.items():
        show(f"{name}: {what}", milliseconds(seen))


def floors() -> Iterator[tuple[str, float]]:
    """What starting processes takes on the host, without any sandbox: (what, seconds)."""
    python = tool_environment().python
    for what, argv in (
        ("spawn true", ["true"]),
        ("python -c pass", [python, "-I", "-c", "pass"]),
        ("python -c 'import pytest'", [python, "-I", "-c", "import pytest"]),
    ):
        start = time.perf_counter()
        subprocess.run(argv, check=True)
        yield what, time.perf_counter() - start


async def life(verifier: Verifier) -> AsyncIterator[tuple[str, float]]:
    """(operation, seconds) through the lives of two sandboxes, one made and one out of the pool."""

    async def timed(work: Awaitable[object]) -> float:
        start = time.perf_counter()
        await work
        return time.perf_counter() - start

    spec = SandboxSpec(name="python", archive=str(verifier.archive), env=variables())
    start = time.perf_counter()
    made = await verifier.provider.create(spec)
    create = time.perf_counter() - start
    yield "create", create
    yield "close", await timed(made.close())
    await (await verifier.provider.acquire(spec)).close()
    # note: long enough for the pool to be full again; a miss would show as a create.
    await asyncio.sleep(0.5 + 4 * create)
    start = time.perf_counter()
    pooled = await verifier.provider.acquire(spec)
    yield "acquire (pool hit)", time.perf_counter() - start
    await asyncio.sleep(0.5 + 2 * create)
    await pooled.exec(["true"], timeout_seconds=10.0)
    yield "exec true", await timed(pooled.exec(["true"], timeout_seconds=10.0))
    yield "put 1 file", await timed(pooled.put({"a/b.py": b"x = 1\n" * 1000}))
    yield "get 1 file", await timed(pooled.get("a/b.py", max_bytes=1 << 20))
    yield "close", await timed(pooled.close())


async def repeated(verifiers: Mapping[str, Verifier], function: Function, *, rounds: int) -> None:
    """Repeats of the clean tree with the real tests of one function, beside their floor."""
    print(f"\n## Repeats of one candidate: {function.name}, {len(function.tests)} of its tests, median of {rounds}\n")
    for name, verifier in verifiers.items():
        took: dict[str, list[float]] = defaultdict(list)
        async with repeats(verifier) as server, floor_server(verifier, function.tests) as floor:
            await server.run(function.tests, budget=BUDGET, again=-1)
            for number in range(rounds):
                for what, seconds in (await floor()).items():
                    took[what].append(seconds)
                start = time.perf_counter()
                run = await server.run(function.tests, budget=BUDGET, again=number)
                took["repeat"].append(time.perf_counter() - start)
                assert run.clean, run
        for what, seen in took.items():
            show(f"{name}: {what}", milliseconds(seen))
        parts = sum(statistics.median(seen) for what, seen in took.items() if what != "repeat")
        show(f"{name}: repeat / sum of the others", f"{statistics.median(took['repeat']) / parts:8.2f} (reach 1.5)")
        for streams in (1, 2):
            found = await rate(verifier, function, streams=streams, rounds=rounds)
            show(f"{name}: repeats a second, streams: {streams}", f"{found:8.1f} (reach 10)")


async def rate(verifier: Verifier, function: Function, *, streams: int, rounds: int) -> float:
    """Repeats a second, with a server of its own for each stream."""

    async def stream(number: int, started: asyncio.Barrier) -> None:
        async with repeats(verifier) as server:
            first = 1000 * (number + 1) * streams
            await server.run(function.tests, budget=BUDGET, again=first)
            await started.wait()
            for again in range(first + 1, first + 1 + rounds):
                await server.run(function.tests, budget=BUDGET, again=again)

    started = asyncio.Barrier(streams + 1)
    jobs = [asyncio.create_task(stream(number, started)) for number in range(streams)]
    await started.wait()
    start = time.perf_counter()
    await asyncio.gather(*jobs)
    return streams * rounds / (time.perf_counter() - start)


@contextlib.asynccontextmanager
async def floor_server(
    verifier: Verifier, tests: Sequence[str]
) -> AsyncIterator[Callable[[], Awaitable[Mapping[str, float]]]]:
    """Asks a process in a sandbox, with pytest loaded as the fork server has it, what the parts of a repeat take."""
    async with verifier.sandbox(change=None) as sandbox:
        await sandbox.put({f"{FOLDER}/{FOLDER_TEST}": b"def test_nothing():\n    pass\n"})
        program = verifier.argv()[-1]
        argv = [*verifier.argv()[:-1], FLOOR, program, json.dumps(list(tests))]
        served = await sandbox.serve(argv, env=variables())
        try:

            async def ask() -> Mapping[str, float]:
                answer: dict[str, float] = json.loads(await served.ask(b"{}", timeout_seconds=60.0))
                return answer

            await ask()
            yield ask
        finally:
            await served.close()


def candidates(verifier: Verifier, found: Survey) -> Iterator[tuple[Function, Change]]:
    """Real mutants of all functions, in a drawn order; no two have equal content, and there is no end of them."""
    pairs = [(f, m) for f in found.functions for m in mutations(f.source)]
    pairs.sort(key=lambda pair: draw("bench", pair[0].name, pair[1].edit.text))
    for lap in itertools.count():
        for function, mutation in pairs:
            target = target_of(function, text=verifier.repository.read(function.path), budget=BUDGET)
            change = changed(target, edits.apply(function.source, mutation.edit))
            if why_not_loadable(target, change) is None:
                yield function, Change(path=change.path, text=change.text + f"# {lap}\n" * (lap > 0))


async def distinct(verifier: Verifier, found: Survey, *, seconds: float) -> None:
    """Distinct candidates, each with its real tests, each in a fresh sandbox."""
    name = verifier.provider.name
    waiting, ended, num_tests = candidates(verifier, found), Counter[str](), 0
    next(waiting)  # note: the first draws the order of them all, which is not a verifier's work.
    before, own, engine = time.perf_counter(), time.process_time(), daemon_seconds()

    async def worker() -> None:
        nonlocal num_tests
        while time.perf_counter() - before < seconds:
            function, change = next(waiting)
            run = await verifier.run(function.tests, budget=BUDGET, change=change)
            ended["passes" if run.clean else "fails" if run.ended is Ended.COMPLETED else run.ended.value] += 1
            num_tests += len(function.tests)

    # note: one more than there are slots, so that a slot never waits for the event loop.
    await asyncio.gather(*(worker() for _ in range((os.cpu_count() or 1) + 1)))
    took, count = time.perf_counter() - before, sum(ended.values())
    goal = {"docker": "2.5", "bubblewrap": "6"}.get(name)
    show(f"{name}: distinct candidates a second", f"{count / took:8.2f}" + (f" (reach {goal})" if goal else ""))
    after, counts = daemon_seconds(), dict(ended)
    # note: not of what ran inside, which no one process can be asked for.
    spent = f"{(time.process_time() - own) / count:.3f} s of this process"
    if name == "docker" and engine is not None and after is not None:
        spent += f", {(after - engine) / count:.3f} s of the engine's daemons"
    print(f"    {count} in {took:.1f} s, {num_tests / count:.1f} tests each, {counts}; CPU each: {spent}")


async def bench(asked: argparse.Namespace) -> None:
    """All three, for the backends that are ready."""
    names = asked.backends or [name for name in ("docker", "bubblewrap") if preflight(name).ready]
    rounds, num_repeats, seconds = (2, 3, 1.0) if asked.short else (asked.rounds, asked.repeats, asked.seconds)
    print(f"backends: {', '.join(names)}; {os.cpu_count()} cores; load average {os.getloadavg()[0]:.2f} at the start")
    async with opened(names) as (verifiers, found):
        function = next(function for function in found.functions if function.name == REPEATED)
        await operations(verifiers, rounds=rounds)
        await repeated(verifiers, function, rounds=num_repeats)
        print(f"\n## Distinct candidates, a fresh sandbox each, for {seconds:g} s\n")
        for verifier in verifiers.values():
            await distinct(verifier, found, seconds=seconds)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", choices=["docker", "bubblewrap", "local", []])
    parser.add_argument("--seconds", type=float, default=60.0, help="for the distinct candidates of each backend")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=15, help="of the operations")
    parser.add_argument("--short", action="store_true", help="some seconds, to see that it works")
    asyncio.run(bench(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
