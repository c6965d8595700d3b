"""Which share of a real suite's passing tests gets canaries: a copy that passes, and a changed copy that fails.

    python tests/attacks/strength.py [SOURCE]... [--most N] [--sandbox bubblewrap|docker] [--names]

Runs each suite once on its clean tree, makes the canaries of every passing test, and runs those on the clean tree, a
module at a time, each in a sandbox of its own. Prints shares of test functions (parameter sets count once), and why the
others got none. Reports, gates nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from selfplay.cache import cache_folder
from selfplay.games.code.canaries import Canaries, canaries_of, proved
from selfplay.games.code.report import Report, parse
from selfplay.games.code.source import fetch
from selfplay.games.code.verify import Budget, Change, Verifier
from selfplay.sandbox.select import choose
from selfplay.types import draw

SOURCES = ("pypi:toolz==1.2.0", "pypi:boltons==26.2.0", "pypi:more-itertools==10.8.0")
BUDGET = Budget(cpu_seconds=300.0, seconds=400.0)
CANARY_BUDGET = Budget(cpu_seconds=15.0, seconds=60.0)
AT_ONCE = 200
"""Canaries in one run: a changed copy may never end, and is then looked for among so many."""


def main() -> int:
    """Measure each source and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=SOURCES)
    parser.add_argument("--most", type=int, default=3, help="mutants of one test")
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--names", action="store_true", help="name the tests that get none")
    asked = parser.parse_args()
    for source in asked.sources:
        asyncio.run(measure(source, most=asked.most, sandbox=asked.sandbox, names=asked.names))
    return 0


async def measure(source: str, *, most: int, sandbox: str, names: bool) -> None:
    """Print the shares of one suite."""
    repository = fetch(source, cache=cache_folder())
    provider = choose(sandbox).provider
    verifier = Verifier(repository, provider=provider, workers=1)
    started = time.monotonic()
    try:
        whole = await ran(verifier, None, paths=verifier.suite.paths, wanted=None)
        if whole is None:
            sys.exit(f"{source}: the suite left no report")
        files: dict[str, list[str]] = {}
        for test in whole.passed:
            path, _, name = test.partition("::")
            files.setdefault(path, []).append(name)
        found = [await examined(verifier, path, tests, most=most) for path, tests in files.items()]
    finally:
        await verifier.aclose()
        await provider.aclose()
    tell(source, whole, files, found, seconds=time.monotonic() - started, names=names)


async def examined(verifier: Verifier, path: str, tests: Sequence[str], *, most: int) -> Canaries:
    """The canaries of one file that hold on the clean tree."""
    rng = random.Random(draw("strength", path))
    source = verifier.repository.read(path)
    made = canaries_of(source, tests, path=path, nonce=f"{draw('nonce', path):x}", rng=rng, most=most)
    change = Change(path=made.path, text=made.text)
    passed: list[str] = []
    failed: dict[str, str] = {}
    todo = [made.nodes[at : at + AT_ONCE] for at in range(0, len(made.nodes), AT_ONCE)]
    while todo:
        nodes = todo.pop()
        report = await ran(verifier, change, paths=[made.path], wanted=nodes, budget=CANARY_BUDGET)
        if report is not None and set(nodes) <= {*report.passed, *report.failed, *report.others}:
            passed += report.passed
            failed |= report.failed
        elif len(nodes) > 1:
            todo += [nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]]
    return proved(made, passed=set(passed), failed=failed)


async def ran(
    verifier: Verifier,
    change: Change | None,
    *,
    paths: Sequence[str],
    wanted: Sequence[str] | None,
    budget: Budget = BUDGET,
) -> Report | None:
    """The report of one run, where it left one."""
    options = [*verifier.suite.options, "--continue-on-collection-errors"]
    request = {"wanted": None if wanted is None else list(wanted), "paths": list(paths), "options": options}
    done = await verifier.execute(request, budget=budget, change=change, pooled=False)
    return parse(done.report) if done.report is not None and not done.result.timed_out else None


def tell(
    source: str,
    whole: Report,
    files: dict[str, list[str]],
    found: Sequence[Canaries],
    *,
    seconds: float,
    names: bool,
) -> None:
    """Print what came of one source."""
    functions = {f"{path}::{test.partition('[')[0]}" for path, tests in files.items() for test in tests}
    kinds: Counter[str] = Counter()
    mutated = set()
    for path, canaries in zip(files, found, strict=True):
        for canary in canaries.canaries:
            kinds[canary.kind] += 1
            if canary.kind == "mutant":
                mutated.add(f"{path}::{canary.of.partition('[')[0]}")
    reasons = Counter(why for canaries in found for why in canaries.left_out.values())
    print(
        f"{source}: {len(whole.passed)} tests pass in {len(files)} files, {len(functions)} functions; "
        f"{len(mutated)} of them ({len(mutated) / max(len(functions), 1):.1%}) get a copy that passes and a changed "
        f"one that fails ({kinds['clone']} copies, {kinds['mutant']} changed, {kinds['nonce']} nonces; {seconds:.0f} s)"
    )
    for why, count in reasons.most_common():
        print(f"    {count} {why}")
    if names:
        for name in sorted(functions - mutated):
            print(f"    - {name}")


if __name__ == "__main__":
    sys.exit(main())
