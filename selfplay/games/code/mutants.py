"""What tests say about procedurally made bugs: shown to repairers in warm-up examples.

What is covered: each mutation is run once against the tests that reach its function; the result is kept in the cache,
unless the wall clock ended the run, which may have been the machine's load.

What is not covered: proof. One run is enough to show what a failing test says; tasks are proved by `bugs`.

Example:
    >>> table = await measure(pairs, verifier=verifier, budget=budget, cache=cache)  # doctest: +SKIP
    >>> table["toolz/dicttoolz.py::merge", "3|    return None"]  # doctest: +SKIP
    {'toolz/tests/test_dicttoolz.py::test_merge': 'assert None == {}'}
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from selfplay.games.code import edits
from selfplay.games.code.bugs import changed, target_of, why_not_loadable
from selfplay.games.code.mutate import Mutation
from selfplay.games.code.survey import Function
from selfplay.games.code.verify import Budget, Ended, Verifier
from selfplay.sandbox.recipe import limits_of
from selfplay.types import digest

Table = dict[tuple[str, str], Mapping[str, str]]
"""(function's name, edit) -> failing test -> message; empty where no test fails or the run did not complete."""

_FORMAT = 2


async def measure(
    pairs: Sequence[tuple[Function, Mutation]],
    *,
    verifier: Verifier,
    budget: Callable[[Function], Budget],
    cache: Path,
) -> Table:
    """Failing tests of each mutation.

    Raises:
        SandboxInfraError: the machine failed.
    """
    table: dict[tuple[str, str], Mapping[str, str]] = {}

    async def one(function: Function, mutation: Mutation) -> None:
        table[function.name, mutation.edit.text] = await _failing(
            function, mutation, verifier=verifier, budget=budget(function), cache=cache
        )

    distinct = {(function.name, mutation.edit.text): (function, mutation) for function, mutation in pairs}
    await asyncio.gather(*(one(function, mutation) for function, mutation in distinct.values()))
    return table


async def _failing(
    function: Function, mutation: Mutation, *, verifier: Verifier, budget: Budget, cache: Path
) -> Mapping[str, str]:
    place = [verifier.repository.digest, verifier.provider.name, function.name, function.source, list(function.tests)]
    limits = [limits_of(verifier.spec)] if limits_of(verifier.spec) else []
    path = cache / "mutants" / f"{digest('mutant', _FORMAT, place, mutation.edit.text, *limits)}.json"
    try:
        known = json.loads(path.read_text())
        return {str(test): str(said) for test, said in known.items()}
    except (FileNotFoundError, ValueError, AttributeError):
        pass
    target = target_of(function, text=verifier.repository.read(function.path), budget=budget)
    change = changed(target, edits.apply(function.source, mutation.edit))
    failing: Mapping[str, str] = {}
    if why_not_loadable(target, change) is None:
        run = await verifier.run(function.tests, budget=budget, change=change)
        if run.ended is Ended.TIMEOUT:
            return {}
        failing = run.failed if run.ended is Ended.COMPLETED else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(dict(failing)))
    aside.replace(path)
    return failing
